"""A handler is told when its work is taken from it by hand."""

from __future__ import annotations

import logging

import pytest

from django_ayework import cancel, complete, delete_chains, enqueue
from django_ayework.flow.notify import revoked_works
from django_ayework.models import Work
from django_ayework.testing import running_worker
from django_ayework.worker import delivery
from tests.processes import eventually
from tests.worker.works import hold, until_aborted

pytestmark = pytest.mark.usefixtures("quick_polls")

ACTS = [
    (cancel, "cancelled", {"cancelled"}),
    (complete, "already_completed", {"success"}),
    (delete_chains, "not_found", set()),
]


@pytest.mark.parametrize(("act", "reason", "status"), ACTS)
def test_the_worker_of_this_process_tells_it_at_once(stage, act, reason, status):
    handle = enqueue(until_aborted())
    with running_worker():
        eventually(lambda: stage.started)
        act(handle.id)
        eventually(lambda: stage.seen)
    assert stage.seen == [reason]
    assert set(Work.objects.filter(id=handle.id).values_list("status", flat=True)) == status


@pytest.mark.parametrize(("act", "reason", "status"), ACTS)
def test_a_worker_elsewhere_notices_by_itself(stage, monkeypatch, act, reason, status):
    """What another process does reaches no listener here."""
    handle = enqueue(until_aborted())
    with running_worker():
        eventually(lambda: stage.started)
        monkeypatch.setattr(revoked_works, "_listeners", [])
        act(handle.id)
        eventually(lambda: stage.seen)
    assert stage.seen == [reason]
    assert set(Work.objects.filter(id=handle.id).values_list("status", flat=True)) == status


def told_too_late(caplog, id: str) -> list[tuple[str, str]]:
    """Return the levels and the causes of log lines on an outcome that was refused."""
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    start = f"The outcome of work {id} came too late: "
    return [(level, text.removeprefix(start)) for level, text in said if text.startswith(start)]


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
def test_that_a_cancelled_work_comes_too_late_is_information(stage, monkeypatch, caplog, is_told):
    """Also when the handler has ended before anybody told it."""
    caplog.set_level(logging.INFO, "django_ayework")
    handle = enqueue(until_aborted() if is_told else hold())
    with running_worker():
        eventually(lambda: stage.started)
        if not is_told:
            monkeypatch.setattr(revoked_works, "_listeners", [])
            monkeypatch.setattr(delivery, "abort_lost", lambda doubtful: None)
        cancel(handle.id)
        stage.go.set()
        eventually(lambda: told_too_late(caplog, handle.id))
    assert told_too_late(caplog, handle.id) == [("INFO", "the work was cancelled.")]


def test_that_a_completed_work_comes_too_late_is_a_warning(stage, caplog):
    handle = enqueue(hold())
    with running_worker():
        eventually(lambda: stage.started)
        complete(handle.id)
        stage.go.set()
        eventually(lambda: told_too_late(caplog, handle.id))
    assert told_too_late(caplog, handle.id) == [("WARNING", "somebody else has moved the work.")]
