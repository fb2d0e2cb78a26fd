"""What a worker's log says of works that fail."""

from __future__ import annotations

import logging

import pytest

from django_ayework import Abort, Defer, Retry, enqueue, enqueue_many, work
from django_ayework.testing import running_worker
from tests.processes import eventually
from tests.worker.works import quick

pytestmark = pytest.mark.usefixtures("quick_polls")


@work(name="worker.fails_once", retry=Retry(attempts=2, base=0.01))
def fails_once(seen: str) -> None:
    if not tried.setdefault(seen, False):
        tried[seen] = True
        raise ValueError("not yet")


@work(name="worker.gives_up", atomic=True)
def gives_up() -> None:
    raise Abort("no address")


@work(name="worker.waits")
def waits() -> None:
    raise Defer(delay=3600)


tried: dict[str, bool] = {}


def told(caplog) -> list[tuple[str, str]]:
    """Return what was logged of failed works: level and first line."""
    return [
        (record.levelname, record.getMessage().splitlines()[0])
        for record in caplog.records
        if record.name == "django_ayework" and record.levelno >= logging.WARNING
    ]


def test_an_attempt_that_is_tried_again_is_a_warning_with_its_traceback(caplog):
    handle = enqueue(fails_once(seen="here"))
    with running_worker():
        handle.result(timeout=20)
    [(level, line)] = told(caplog)
    assert level == "WARNING"
    assert line.startswith(
        f"Work {handle.id} (worker.fails_once) failed (attempt 1 of 2), and is tried again at "
    )
    assert line.endswith(": ValueError: not yet")
    assert 'raise ValueError("not yet")' in caplog.text


def test_a_death_is_an_error_in_whatever_mode_it_came(caplog):
    handle = enqueue(gives_up())
    with running_worker():
        eventually(lambda: told(caplog))
    error = f"Work {handle.id} (worker.gives_up) is dead (aborted, attempt 1 of 3): no address"
    assert told(caplog) == [("ERROR", error)]


def test_a_work_that_never_ran_had_no_attempt(caplog):
    handle = enqueue(quick(), expires=0)
    with running_worker():
        eventually(lambda: told(caplog))
    error = f"Work {handle.id} (worker.quick) is dead (expired, attempt 0 of 3): deadline exceeded"
    assert told(caplog) == [("ERROR", error)]


def test_success_and_deferral_are_not_logged(caplog):
    ended, deferred = enqueue_many([quick(), waits()])
    with running_worker():
        ended.result(timeout=20)
        eventually(lambda: deferred.state().status == "scheduled")
    assert told(caplog) == []
