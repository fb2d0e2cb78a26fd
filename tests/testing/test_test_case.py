"""The kit in a plain Django ``TestCase``: no fixtures, one transaction."""

from __future__ import annotations

from typing import Any

from django.test import TestCase, TransactionTestCase

from django_ayework import enqueue
from django_ayework.models import Work
from django_ayework.signals import work_succeeded
from django_ayework.testing import (
    assert_enqueued,
    assert_not_enqueued,
    drain,
    perform,
    running_worker,
    time_travel,
)
from tests.app.models import Order
from tests.app.works import add, pay


class PlainTest(TestCase):
    @classmethod
    def setUpTestData(cls) -> None:
        cls.order = Order.objects.create(reference="A1")

    def test_works_run_in_the_tests_transaction(self) -> None:
        heard: list[Any] = []

        def receiver(work: Any, **keywords: Any) -> None:
            heard.append(work.id)

        work_succeeded.connect(receiver)
        self.addCleanup(work_succeeded.disconnect, receiver)
        handle = enqueue(pay(order_id=self.order.pk), delay=60)
        assert_enqueued(pay, order_id=self.order.pk)
        time_travel(61)
        self.assertEqual(drain().succeeded, 1)
        self.order.refresh_from_db()
        self.assertTrue(self.order.paid)
        self.assertEqual(heard, [handle.id])

    def test_nothing_is_left_of_other_tests(self) -> None:
        self.assertEqual(Work.objects.count(), 0)
        assert_not_enqueued()
        self.assertFalse(self.order.paid)

    def test_callbacks_can_be_captured_as_usual(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            handle = enqueue(add(a=1, b=2), on_commit=True)
            self.assertIsNone(handle.state())
        self.assertIsNotNone(handle.state())
        self.assertEqual(drain().succeeded, 1)

    def test_a_handler_can_be_called_alone(self) -> None:
        self.assertEqual(perform(add(a=1, b=2)).result, 3)
        self.assertEqual(Work.objects.count(), 0)


class WorkerTest(TransactionTestCase):
    def test_a_real_worker_runs_beside_the_test(self) -> None:
        with running_worker(concurrency=2) as worker:
            self.assertEqual(enqueue(add(a=1, b=2)).result(timeout=20), 3)
            self.assertEqual(worker.concurrency, 2)
        handle = enqueue(add(a=1, b=2))
        self.assertEqual(Work.objects.get(id=handle.id).status, "pending")
