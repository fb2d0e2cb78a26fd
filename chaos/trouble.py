"""What surrounds works, misbehaving: receivers, hooks, middlewares, a propagator, a handler of the log."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction

from chaos.works import Panic, Planned, attempt
from django_ayework import Context, propagation, signals
from django_ayework.propagation import Propagator

#: How many calls of one hundred misbehave.
SHARE = 4
RAISED: tuple[type[BaseException], ...] = (
    Planned,
    Panic,
    SystemExit,
    GeneratorExit,
    StopIteration,
    MemoryError,
    asyncio.CancelledError,
)


class Trouble(Propagator):
    """Misbehaves now and then, wherever the engine calls the project."""

    def __init__(self, seed: str) -> None:
        self._dice = random.Random(f"{seed}-{os.getpid()}")
        self._lock = threading.Lock()

    def visit(self, acts: Sequence[Callable[[Trouble], object]] | None = None) -> None:
        """Do one of some acts, mostly none."""
        with self._lock:
            is_bad, act = self._dice.random() * 100 < SHARE, self._dice.choice(acts or ACTS)
        if is_bad:
            act(self)

    def receive(self, **kwargs: Any) -> None:
        """Misbehave as a receiver."""
        self.visit()

    def inject(self, queueing: propagation.Queueing) -> Mapping[str, str]:
        """Store nothing. This may be called within the transaction of a handler."""
        self.visit(HARMLESS)
        return {}

    @contextmanager
    def attach(self, attempt: propagation.RunningAttempt) -> Iterator[None]:
        """Misbehave before the handler, or after it."""
        self.visit(HARMLESS)
        yield
        self.visit(HARMLESS)

    def answer(self) -> object:
        """Return an advice on a failure, or none."""
        with self._lock:
            return self._dice.choice((None, "retry"))

    def fail(self) -> None:
        """Raise anything."""
        raise self._dice.choice(RAISED)("as planned")

    def wait(self) -> None:
        """Take a while."""
        time.sleep(self._dice.uniform(0.0, 0.5))

    def read(self) -> None:
        """Use the database."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM chaos_effect")

    def close(self) -> None:
        """Close Django's connection."""
        connection.close()

    def break_connection(self) -> None:
        """Close the driver's connection, which Django does not know."""
        connection.ensure_connection()
        connection.connection.close()

    def leave_transaction(self) -> None:
        """Begin a transaction, write a row, and leave it open."""
        transaction.atomic().__enter__()
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO chaos_effect (work, kind) VALUES ('', 'noise')")

    def spoil_transaction(self) -> None:
        """Leave a transaction open that has failed."""
        transaction.atomic().__enter__()
        with suppress(Exception), connection.cursor() as cursor:
            cursor.execute("SELECT no_such_column")

    def leave_autocommit(self) -> None:
        """Leave the connection in transactions that nobody commits."""
        transaction.set_autocommit(False)


#: What handlers of the log do, and functions whose connection a handler uses; and what all others do.
HARMLESS = (Trouble.fail, Trouble.wait, Trouble.read)
ACTS = (
    *HARMLESS,
    Trouble.close,
    Trouble.break_connection,
    Trouble.leave_transaction,
    Trouble.spoil_transaction,
    Trouble.leave_autocommit,
)


class TroubledHandler(logging.Handler):
    """A handler of the log that raises, reads, or takes a while."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        self._trouble = trouble

    def emit(self, record: logging.LogRecord) -> None:
        """Misbehave, mostly not."""
        self._trouble.visit(HARMLESS)


#: Types of works with a single attempt.
SINGLE = ("chaos.once", "chaos.once_async")
#: What a middleware calls: the next one, or the handler.
CallNext = Callable[..., Any]
#: The one of this process.
_trouble = Trouble(os.environ.get("CHAOS_TROUBLE", ""))


def on_error(error: BaseException, phase: str) -> None:
    """Misbehave as the hook ``ON_ERROR``."""
    _trouble.visit()


def log_context(input: Mapping[str, Any], type: str) -> dict[str, str]:
    """Misbehave as the hook ``LOG_CONTEXT``."""
    _trouble.visit()
    return {"type": type}


def on_failure(error: BaseException, info: Any) -> object:
    """Misbehave as the hook ``ON_FAILURE``."""
    _trouble.visit()
    return _trouble.answer()


def around(ctx: Context, call_next: CallNext) -> object:
    """Misbehave as a middleware, before the handler or after it."""
    visit_around(ctx)
    returned = call_next()
    visit_around(ctx)
    return returned


async def around_async(ctx: Context, call_next: CallNext) -> object:
    """Misbehave as an async middleware. Handlers are plain and async, so each meets one of the other kind."""
    await visit_in_thread(ctx)
    returned = await call_next()
    await visit_in_thread(ctx)
    return returned


def visit_around(ctx: Context) -> None:
    """Do what a middleware may do, and note a failure as one of the handler. Single attempts do not fail."""
    try:
        _trouble.visit((Trouble.wait, Trouble.read) if ctx.type in SINGLE else HARMLESS)
    except BaseException as error:
        with attempt(ctx.id, ctx.attempt):
            raise error


async def visit_in_thread(ctx: Context) -> None:
    """Do it in a thread. asyncio waits for ever for a future that raises StopIteration."""

    def caught() -> BaseException | None:
        try:
            visit_around(ctx)
        except BaseException as error:
            return error
        return None

    if (error := await sync_to_async(caught)()) is not None:
        raise error


def begin() -> None:
    """Surround all works of this process with trouble."""
    propagation.register(_trouble)
    for signal in vars(signals).values():
        if isinstance(signal, signals.RobustSignal) and signal is not signals.worker_started:
            signal.connect(_trouble.receive, weak=False)
    logging.getLogger("django_ayework").addHandler(TroubledHandler(_trouble))
