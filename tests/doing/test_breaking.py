"""Doers that break are reported and lose no work; errors of handlers are none of theirs."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from django_ayework import Retry, batch_work, doers, enqueue, enqueue_many
from django_ayework.models import Work
from django_ayework.testing import running_worker
from django_ayework.worker import maintenance
from django_ayework.worker.worker import Worker
from tests.doing.kit import typed
from tests.doing.works import note, note_all
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick_polls")]


def test_a_batch_that_a_doer_refuses_goes_back(stage, caplog, monkeypatch):
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.05)
    own = batch_work(name="doing.several", doer=Broken(), size=3, max_wait=0.01)(note_all)
    handles = enqueue_many([own("x") for _ in range(3)])
    with caplog.at_level(logging.ERROR, "django_ayework"), Worker() as worker:
        assert [handle.result(timeout=20) for handle in handles] == ["x"] * 3
    assert "refused a batch of 3 doing.several" in caplog.text
    assert worker._in_flight.active == 0
    assert set(Work.objects.values_list("attempt", flat=True)) == {1}


class Broken:
    """A doer of somebody else's that breaks once at each place."""

    def __init__(self) -> None:
        self.breaks = ["submit", "available"]
        self.inner = doers.unlimited()

    def broken(self, place: str) -> None:
        if self.breaks and self.breaks[-1] == place:
            self.breaks.pop()
            raise OSError(f"{place} broke")

    def available(self) -> int:
        self.broken("available")
        return self.inner.available()

    def submit(self, *arguments: Any) -> None:
        self.broken("submit")
        self.inner.submit(*arguments)

    def drained(self) -> None:
        self.inner.drained()


def test_a_doer_that_breaks_is_reported_and_loses_no_work(stage, caplog, monkeypatch):
    monkeypatch.setattr(maintenance, "STALE_AFTER", 0.05)
    own = typed(note, Broken())
    handle = enqueue(own(label="x"))
    with caplog.at_level(logging.ERROR, "django_ayework"), running_worker():
        assert handle.result(timeout=20) == "x"
    assert "could not say how many works are welcome" in caplog.text
    assert "refused" in caplog.text
    assert Work.objects.get().attempt == 1


def test_an_error_in_the_handler_is_the_works_not_the_doers(stage, caplog):
    def fail() -> None:
        raise RuntimeError("no")

    own = typed(fail, doers.balanced(1), retry=Retry(attempts=1))
    handle = enqueue(own())
    with running_worker():
        eventually(lambda: handle.state().status == "dead")
    assert "a task of a doer raised" not in caplog.text
