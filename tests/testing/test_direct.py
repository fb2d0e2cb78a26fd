"""Works that skip the queue, in tests of a project: the first attempt is made by ``drain`` or a worker."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction
from django.test import TestCase

from django_ayework import enqueue
from django_ayework.flow import after_commit
from django_ayework.testing import drain, perform, running_worker
from tests.direct.works import quick


class PlainTest(TestCase):
    def setUp(self) -> None:
        """Be without pytest's fixtures, which hold such works back."""
        after_commit.providers.held_back = False
        self.offered = []
        self.intake, after_commit.providers.intake = after_commit.providers.intake, self.offered.append
        self.addCleanup(setattr, after_commit.providers, "intake", self.intake)

    def test_drain_makes_the_first_attempt(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            handle = enqueue(quick(number=1))
        enqueue(quick(number=2), on_commit=True)
        self.assertEqual(handle.state().attempt, 0)
        self.assertEqual(drain().succeeded, 2)
        self.assertEqual(handle.result(timeout=0), threading.current_thread().name)
        self.assertEqual(self.offered, [])


@pytest.mark.django_db(transaction=True)
def test_so_it_does_when_the_test_commits():
    with transaction.atomic():
        handle = enqueue(quick(number=1))
    assert handle.state().status == "pending"
    assert drain().succeeded == 1
    assert handle.result(timeout=0) == threading.current_thread().name


@pytest.mark.django_db(transaction=True)
def test_or_a_worker_beside_the_test():
    with running_worker():
        handle = enqueue(quick(number=1))
        handle.result(timeout=20)
    assert not handle.state().completed_by.startswith("direct-")


@pytest.mark.django_db
def test_a_handler_can_be_called_alone():
    assert perform(quick()).result == threading.current_thread().name
