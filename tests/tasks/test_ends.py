"""Ends of tasks that Django does not know: lost, expired, removed, completed by a person; and their cost."""

from __future__ import annotations

import pickle
from datetime import timedelta

import django
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import WorkFailed, complete, enqueue
from django_ayework.flow.maintenance import prune, reclaim
from django_ayework.models import Work
from django_ayework.testing import drain, time_travel
from django_ayework.testing.factories import AttemptFactory
from django_ayework.testing.running import next_due
from tests.app.works import add as plain_work
from tests.tasks import kit
from tests.tasks.kit import exceptions, finished

pytestmark = pytest.mark.django_db


@pytest.mark.skipif(django.VERSION < (6, 1), reason="pickling is of Django 6.1")
def test_26_a_task_and_its_result_can_be_pickled():
    result = kit.add.using(priority=4, run_after=timedelta(hours=1)).enqueue(1)
    assert pickle.loads(pickle.dumps(result)) == result
    assert pickle.loads(pickle.dumps(result.task)) == result.task


def test_27_a_task_whose_worker_was_lost_for_good_has_failed():
    result = kit.add.enqueue(1)
    [delivery] = next_due(None)
    time_travel(timedelta(minutes=5))
    reclaim()
    result.refresh()
    assert (str(result.status), result.worker_ids) == ("FAILED", [delivery.row.worker])
    assert [each.exception_class for each in result.errors] == [WorkFailed]
    assert "worker lost" in result.errors[0].traceback


def test_27_a_task_that_expires_has_failed_without_an_attempt():
    result = kit.soon.using(run_after=timedelta(hours=2)).enqueue()
    time_travel(timedelta(hours=3))
    result = finished(result)
    assert (str(result.status), result.attempts) == ("FAILED", 0)
    assert [each.exception_class for each in result.errors] == [WorkFailed]
    assert "deadline exceeded" in result.errors[0].traceback


def test_27_a_removed_task_has_no_result():
    result = kit.add.enqueue(1)
    Work.objects.filter(id=result.id).update(type="shop.tasks.removed")
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        result.refresh()


def test_27_a_result_that_was_pruned_does_not_exist():
    result = finished(kit.add.enqueue(1))
    time_travel(timedelta(days=365))
    prune()
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        result.refresh()


def test_27_a_task_that_a_person_completes_has_succeeded(sent):
    result = kit.add.enqueue(1)
    complete(result.id, 17)
    result.refresh()
    assert (str(result.status), result.return_value, result.worker_ids) == ("SUCCESSFUL", 17, [])


@pytest.mark.django_db(transaction=True)
def test_a_success_costs_no_query_for_its_signals():
    drain()  # it sets the clock, if that is due
    kit.add.enqueue(1)
    with CaptureQueriesContext(connection) as with_signals:
        drain()
    enqueue(plain_work(a=1, b=2))
    with CaptureQueriesContext(connection) as plain:
        drain()
    assert len(with_signals) == len(plain)


def test_a_kept_success_counts_as_the_one_attempt_that_it_is():
    result = kit.add.enqueue(1)
    drain()
    work = Work.objects.get(id=result.id)
    AttemptFactory(work_id=work.id, number=1, worker=work.completed_by, outcome="success")
    result.refresh()
    assert (result.attempts, result.errors, result.worker_ids) == (1, [], [work.completed_by])
