"""What a handler learns when its work is taken from it, and what the log says of failures."""

from __future__ import annotations

import logging

import pytest

from django_ayework import Abort, Context, Defer, Retry, cancel, complete, enqueue, enqueue_many, work
from django_ayework.flow.notify import revoked_works
from django_ayework.testing import running_worker
from django_ayework.worker import in_flight as delivery
from tests.processes import eventually
from tests.worker.works import hold, quick, until_aborted

pytestmark = pytest.mark.usefixtures("quick_polls")


def logged_too_late(caplog, id: str) -> list[tuple[str, str]]:
    """Return the levels and the causes of log lines on an outcome that was refused."""
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    start = f"The outcome of work {id} came too late: "
    causes = [(level, text.removeprefix(start)) for level, text in said if text.startswith(start)]
    return [(level, cause.partition(" (see ")[0]) for level, cause in causes]


@pytest.mark.parametrize(
    ("act", "kind", "line"),
    [
        (cancel, until_aborted, ("INFO", "the work was cancelled.")),
        (cancel, hold, ("INFO", "the work was cancelled.")),
        (complete, hold, ("WARNING", "another process has claimed or ended the work.")),
    ],
    ids=["cancelled, noticed", "cancelled, not noticed", "completed"],
)
def test_an_outcome_that_comes_too_late_is_logged(stage, monkeypatch, caplog, act, kind, line):
    caplog.set_level(logging.INFO, "django_ayework")
    handle = enqueue(kind())
    with running_worker():
        eventually(lambda: stage.started)
        if act is cancel and kind is hold:
            monkeypatch.setattr(revoked_works, "_listeners", [])
            monkeypatch.setattr(delivery, "abort_lost", lambda doubtful: None)
        act(handle.id)
        stage.go.set()
        eventually(lambda: logged_too_late(caplog, handle.id))
    assert logged_too_late(caplog, handle.id) == [line]


@work(name="worker.fails_once", retry=Retry(attempts=2, base=0.01))
def fails_once(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise ValueError("not yet")


@work(name="worker.gives_up", atomic=True)
def gives_up() -> None:
    raise Abort("no address")


@work(name="worker.waits")
def waits() -> None:
    raise Defer(delay=3600)


def logged(caplog) -> list[tuple[str, str]]:
    """Return what was logged of failed works: level and first line."""
    return [
        (record.levelname, record.getMessage().splitlines()[0])
        for record in caplog.records
        if record.name == "django_ayework" and record.levelno >= logging.WARNING
    ]


def test_an_attempt_that_is_tried_again_is_a_warning_with_its_traceback(caplog):
    handle = enqueue(fails_once())
    with running_worker():
        handle.result(timeout=20)
    [(level, line)] = logged(caplog)
    assert level == "WARNING"
    assert line.startswith(
        f"Work {handle.id} (worker.fails_once) failed (attempt 1 of 2), and is tried again at "
    )
    assert line.endswith(": ValueError: not yet")
    assert 'raise ValueError("not yet")' in caplog.text


@pytest.mark.parametrize(
    ("kind", "options", "error"),
    [
        (gives_up, {}, "(worker.gives_up) is dead (aborted, attempt 1 of 3): no address"),
        (quick, {"expires": 0}, "(worker.quick) is dead (expired, attempt 0 of 3): deadline exceeded"),
    ],
    ids=["aborted", "never ran"],
)
def test_a_death_is_logged_as_an_error(caplog, kind, options, error):
    handle = enqueue(kind(), **options)
    with running_worker():
        eventually(lambda: logged(caplog))
    assert logged(caplog) == [("ERROR", f"Work {handle.id} {error}")]


def test_success_and_deferral_are_not_logged(caplog):
    ended, deferred = enqueue_many([quick(), waits()])
    with running_worker():
        ended.result(timeout=20)
        eventually(lambda: deferred.state().status == "scheduled")
    assert logged(caplog) == []
