"""One call that may be interrupted: where the exception may come, and what it counts as."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_ayework import Aborted
from django_ayework.compat import set_async_exception
from django_ayework.define.context import AbortReason, AbortSignal
from django_ayework.worker import interruption
from django_ayework.worker.interruption import Interruption, class_like
from tests.attempts import works
from tests.attempts.works import be_busy
from tests.processes import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("stage", "quick_watch"),
    # An interruption that lands in a finaliser, as drivers have them, is printed and goes no further.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def interruptible(reason: AbortReason = AbortReason.CANCELLED) -> Interruption:
    signal = AbortSignal()
    signal.abort(reason)
    return Interruption(signal, lambda: Aborted(str(reason), id="w"))


def struck_while(interrupted: Interruption, handler: Any) -> Any:
    """Call a handler while another thread strikes all the time."""
    over = threading.Event()

    def strike() -> None:
        while not over.is_set():
            interrupted.interrupt()

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        return interrupted.call(handler)
    finally:
        over.set()
        thread.join()


def test_the_exception_is_like_the_error_it_stands_for():
    with pytest.raises(Aborted) as raised:
        struck_while(interruptible(), be_busy)
    assert (raised.value.reason, raised.value.id) == ("cancelled", "w")
    assert str(raised.value) == "The attempt was asked to stop: cancelled."
    assert type(raised.value).__name__ == "Aborted"


def test_nothing_comes_before_the_handler_or_after_it():
    interrupted = interruptible()
    interrupted.interrupt()
    assert interrupted.call(lambda: "done") == "done"
    interrupted.interrupt()
    assert interrupted.arrived is None


def test_what_was_set_can_be_taken_back():
    """A thread that is blocked outside of Python meets an exception as soon as it is back."""
    held, trying = threading.Lock(), threading.Event()
    met: list[BaseException | None] = []

    def blocked() -> None:
        try:
            trying.set()
            with held:
                len("")
            met.append(None)
        except Aborted as error:
            met.append(error)

    for takes_back in (False, True):
        trying.clear()
        thread = threading.Thread(target=blocked)
        with held:
            thread.start()
            eventually(trying.is_set)
            assert thread.ident is not None
            set_async_exception(thread.ident, class_like(Aborted("test"), lambda _: None))
            if takes_back:
                set_async_exception(thread.ident, None)
        thread.join(20)
    assert [type(error).__name__ for error in met] == ["Aborted", "NoneType"]


def test_a_handler_that_was_told_is_left_to_clean_up():
    """``raise_if_aborted`` has raised the same, so nobody interrupts what the handler does about it."""
    interrupted = interruptible()

    def heeds() -> str:
        try:
            interrupted._signal.raise_if_aborted()
        except Aborted:
            for _ in range(50_000):
                ""
        return "cleaned up"

    assert struck_while(interrupted, heeds) == "cleaned up"


def test_what_a_driver_makes_of_it_counts_as_the_interruption():
    """They take it for a network's timeout, and say later, of themselves, that they could not connect."""

    def connects() -> None:
        try:
            be_busy()
        except Aborted as error:
            last = OperationalError(f"failed to resolve host: {error}")
        raise last

    with pytest.raises(Aborted) as raised:
        struck_while(interruptible(), connects)
    assert isinstance(raised.value.__cause__, OperationalError)


def test_errors_of_the_handler_itself_stay_what_they_are():
    def objects() -> None:
        try:
            be_busy()
        except Aborted as error:
            raise ValueError("not that again") from error

    with pytest.raises(ValueError, match="not that again"):
        struck_while(interruptible(), objects)


def test_a_handler_is_not_interrupted_where_it_would_leave_a_lock_taken():
    interrupted = interruptible()

    class Lock:
        def __enter__(self) -> None:
            interrupted.interrupt()

        def __exit__(self, *error: object) -> None:
            interrupted.interrupt()

    class Logging(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            interrupted.interrupt()

    def careful() -> str:
        logger = logging.Logger("attempts")
        logger.addHandler(Logging())
        with Lock():
            logger.warning("inside")
        return "unharmed"

    assert interrupted.call(careful) == "unharmed"


def test_patience_with_delicate_places_ends(monkeypatch):
    monkeypatch.setattr(interruption, "PATIENCE", 0.01)

    class Lock:
        def __enter__(self) -> None:
            be_busy()

        def __exit__(self, *error: object) -> None: ...

    def stuck() -> None:
        with Lock():
            pass

    with pytest.raises(Aborted):
        struck_while(interruptible(), stuck)


def test_a_connection_that_cannot_be_closed_is_reported(reported, monkeypatch):
    def fail() -> None:
        raise OSError("no such socket")

    with monkeypatch.context() as patched, pytest.raises(Aborted):
        patched.setattr(connections["default"], "close", fail)
        struck_while(interruptible(), be_busy)
    assert reported == [("no such socket", "queue")]
    assert works.stage.started.is_set()
