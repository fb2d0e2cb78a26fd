"""Works that leave their batch, or are lost to others, before it ends."""

from __future__ import annotations

import time

import pytest
from django.db import OperationalError, transaction

from django_ayework import cancel, enqueue, enqueue_many
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Work
from django_ayework.testing import running_worker
from django_ayework.worker import delivery, dispatch
from tests.batches.works import hold, patient
from tests.processes import eventually
from tests.races.rivals import claim_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick_polls")]


def test_a_work_that_is_cancelled_here_while_it_gathers_is_left_out(stage):
    first, second = enqueue(patient(0)), enqueue(patient(1))
    with running_worker() as worker:
        eventually(lambda: len(worker._in_flight.all()) == 2)
        cancel(second.id)
        third = enqueue(patient(2))
        assert (first.result(timeout=20), third.result(timeout=20)) == (0, 4)
    assert stage.runs == [[0, 2]]
    assert second.state().status == "cancelled"


@pytest.mark.parametrize("fails", [False, True])
def test_so_is_one_that_somebody_else_cancels_or_completes(stage, monkeypatch, fails, caplog):
    """The database is asked before the run; when it does not answer, the late outcome is refused."""
    first, second = enqueue(patient(0)), enqueue(patient(1))
    with running_worker() as worker:
        eventually(lambda: Work.objects.filter(status="running").count() == 2)
        before = time.monotonic()
        eventually(lambda: time.monotonic() > before + dispatch.TRUSTED_FOR)
        Work.objects.filter(id=second.id).update(
            status="cancelled", worker=None, leased_until=None, ended_at="2026-01-01T00:00:00Z"
        )
        if fails:
            monkeypatch.setattr(delivery, "holders_of", broken)
        third = enqueue(patient(2))
        assert (first.result(timeout=20), third.result(timeout=20)) == (0, 4)
        eventually(lambda: not worker._in_flight.all())
    assert stage.runs == ([[0, 1, 2]] if fails else [[0, 2]])
    assert second.state().status == "cancelled"
    assert ("came too late" in caplog.text) is fails


def broken(*args):
    raise OperationalError("server closed the connection unexpectedly")


def test_outcomes_of_works_lost_during_the_run_are_refused_and_the_others_settle(stage):
    handles = enqueue_many([hold(number) for number in range(2)])
    with running_worker() as worker:
        eventually(lambda: stage.inside)
        cancel(handles[0].id)
        stage.go.set()
        assert handles[1].result(timeout=20) == 2
        eventually(lambda: not worker._in_flight.all())
    assert handles[0].state().status == "cancelled"


def test_a_late_outcome_of_one_work_spoils_no_other(stage):
    """As when its lease lapsed and another worker ended it."""
    handles = enqueue_many([hold(number) for number in range(2)])
    with running_worker() as worker:
        eventually(lambda: stage.inside)
        with transaction.atomic():  # or else this worker might claim it again
            Work.objects.filter(id=handles[0].id).update(status="pending", worker=None, leased_until=None)
            [row] = claim_all("another").values()
        settle([Settlement(row, Success('"theirs"'))])
        stage.go.set()
        assert handles[1].result(timeout=20) == 2
        eventually(lambda: not worker._in_flight.all())
    assert handles[0].result() == "theirs"
