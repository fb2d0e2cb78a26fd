"""A worker that is asked to stop before it could register, or just before it rests."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import OperationalError

from django_ayework import signals
from django_ayework.worker import health, maintenance
from django_ayework.worker.worker import Worker
from tests.processes import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_that_stops_before_the_database_answers_starts_nothing(monkeypatch, caplog):
    asked, begun = threading.Event(), []

    def refuse() -> None:
        asked.set()
        raise OperationalError("the database is away")

    monkeypatch.setattr(health, "require_usable_database", refuse)
    monkeypatch.setattr(maintenance, "sync", lambda: begun.append("schedules"))

    def note(sender, **kwargs):
        begun.append("worker")

    signals.worker_started.connect(note)
    signals.worker_stopped.connect(note)
    try:
        worker = Worker(concurrency=1)
        thread = threading.Thread(target=worker.run)
        thread.start()
        assert asked.wait(PATIENCE)
        worker.request_stop()
        thread.join(PATIENCE)
    finally:
        signals.worker_started.disconnect(note)
        signals.worker_stopped.disconnect(note)
    assert not thread.is_alive()
    assert begun == []
    assert "Worker" not in caplog.text


def test_a_stop_that_comes_between_the_check_and_the_rest_ends_the_rest(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.AYEWORK = {"POLL_INTERVAL": 600}
    is_over = Worker._is_over

    def ask_after_the_check(worker: Worker) -> bool:
        was_over = is_over(worker)
        worker.request_stop()
        return was_over

    monkeypatch.setattr(Worker, "_is_over", ask_after_the_check)
    worker = Worker(concurrency=1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
