"""The runner of attempts: open each work, call the handler once, conclude each work.

Everything that runs handlers goes this way: the slots and the event loop of a worker, works that skip the
queue, and the testing kit. A single work and a batch differ in how the handler is called and in the meaning
of the returned value. :func:`run` and :func:`arun` differ in the call of the handler alone. On the event
loop, code of the project's that may query (receivers, hooks) runs in the work's thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from asgiref.sync import async_to_sync
from django.db import Error

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason, Context
from django_ayework.define.handles import FailureInfo, Kind
from django_ayework.define.types import INPUT, AnyWorkType, BatchItem
from django_ayework.documentation import type_error
from django_ayework.errors import Abort, Aborted, AttemptTimeout, AyeworkError, Defer, Reschedule
from django_ayework.flow.context_services import EngineServices, assignment_of
from django_ayework.flow.events import announce_start, has_own_receivers
from django_ayework.flow.hooks import answer_of, attempt_facts, log_hooks, report
from django_ayework.flow.outcomes import retry_input_of, success_of_value, unknown_text
from django_ayework.flow.payloads import read_input
from django_ayework.flow.propagation import AttemptOfRows
from django_ayework.flow.settle import Settlement
from django_ayework.flow.unit_of_work import ContributionFailed
from django_ayework.logs import AttemptLogged
from django_ayework.propagation import propagators
from django_ayework.rules.formatting import class_path, error_text, traceback_of
from django_ayework.rules.retry import AttemptDecision, decide_failure, die, expire, has_expired
from django_ayework.rules.states import Outcome, Reason
from django_ayework.store.connections import end_if_forked, failed_to_connect, note_connection
from django_ayework.store.database import alias, clock
from django_ayework.worker.handlers import (
    Cancellation,
    in_thread,
    is_async,
    middlewares_of,
    put_off,
    require_outputs,
    settlement_of,
    surrounded,
    to_the_end,
)
from django_ayework.worker.in_flight import Batch, Delivery, warn_if_lost
from django_ayework.worker.interruption import forget_connections
from django_ayework.worker.transactions import AttemptTransactions

T = TypeVar("T")
#: A delivery with the settlement of its attempt; None where nothing is written.
Ended: TypeAlias = tuple[Delivery, Settlement | None]


def run(
    load: Delivery | Batch,
    services: EngineServices,
    guard: Callable[[HandlerCall], AbstractContextManager[Any]] = nullcontext,
) -> list[Ended]:
    """Run a work or a batch in this thread; return how each attempt ended.

    ``guard`` surrounds handler and conclusion. If ``delivery.settled``, the handler's own transaction has
    written the settlement already.
    """
    call, ended = opened(load, services)
    if call is None:
        return ended
    with call.logged():
        try:
            with guard(call):
                return ended + call.completed()
        except BaseException as error:
            require_recordable(error)
            ended += call.failed(error)
            if call.was_interrupted:  # cursors are freed by this thread: no other may use its connections
                traceback.clear_frames(error.__traceback__)
            return ended


async def arun(load: Delivery | Batch, services: EngineServices) -> list[Ended]:
    """Run a work or a batch whose handler is async on the event loop; see run()."""
    call, ended = await in_thread_if(
        has_own_receivers(Kind.STARTED, load.type), partial(opened, load, services)
    )
    if call is None:
        return ended
    has_advice = advice_hook(call.work_type) is not None
    with await in_thread_if(call.may_query_before, call.logged):
        try:
            conclude = partial(call.concluded, await call.awaited())  # may judge works of a batch
            is_needed = call.is_completing or (has_advice and call.is_batch)
            return ended + await in_thread_if(is_needed, conclude, to_the_end)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and AbortReason.SHUTDOWN in call.reasons():
                raise
            is_needed = call.is_completing or has_advice
            return ended + await in_thread_if(is_needed, partial(call.failed, error), to_the_end)


async def in_thread_if(is_needed: bool, act: Callable[[], T], run: Any = in_thread) -> T:
    """Run a step of the engine, in the work's thread if it may call code of the project's."""
    return await run(act) if is_needed else act()


def require_recordable(error: BaseException) -> None:
    """Raise a KeyboardInterrupt of the main thread again: there it stops a test that drains.

    Any other error of a handler ends its attempt; so does KeyboardInterrupt in a thread of a worker.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


class Attempt(NamedTuple):
    """An attempt that is ready to run."""

    delivery: Delivery
    work_type: AnyWorkType
    arguments: dict[str, Any]
    services: EngineServices


def opened(
    load: Delivery | Batch, services: EngineServices, stored: bool = True
) -> tuple[HandlerCall | None, list[Ended]]:
    """Return the call to make, None if no work can run, and how works ended that cannot.

    ``stored``: the works are in the database.
    """
    attempts: list[Attempt] = []
    ended: list[Ended] = []
    for delivery in load.deliveries:
        attempt = open_attempt(delivery, services) if delivery.may_run else None
        if isinstance(attempt, Attempt):
            attempts.append(attempt)
        else:
            ended.append((delivery, attempt))
    if not attempts:
        return None, ended
    return (BatchCall if isinstance(load, Batch) else HandlerCall)(attempts, stored), ended


def open_attempt(delivery: Delivery, services: EngineServices) -> Attempt | Settlement:
    """Return the attempt, or the settlement of a work that is expired, unknown, or cannot be read."""
    row, work_type = delivery.row, delivery.work_type
    if row.deadline is not None and has_expired(row.deadline, clock.now()):
        return Settlement(row, replace(expire(), counts=False))
    if work_type is None:
        return Settlement(row, replace(die(Reason.UNKNOWN_TYPE, unknown_text(row.type)), counts=False))
    try:
        arguments = work_type.arguments(read_input(row.input, work_type))
    except (Error, OSError) as error:  # a server that the codec asks is away: the input may be good
        return judged(Attempt(delivery, work_type, {}, services), error)
    except BaseException as error:  # a codec of the project's own may raise anything
        services.note_failure(row.id, error)
        return Settlement(row, die(Reason.BAD_INPUT, error_text(error)), exception=class_path(error))
    announce_start(delivery)
    return Attempt(delivery, work_type, arguments, services)


class HandlerCall:
    """The call of a handler for one attempt."""

    is_batch = False
    attached: AttemptOfRows | None = None  # the blocks of propagators, if there are any
    was_interrupted = False  # by an exception that another thread has raised inside the handler

    def __init__(self, attempts: Sequence[Attempt], stored: bool) -> None:
        self.attempts = attempts
        self.attempt = attempts[0]
        self.work_type = self.attempt.work_type
        self.process = os.getpid()
        self.middlewares = [] if self.is_batch else middlewares_of(self.work_type)
        self.context: Context | None = None  # this and the next are None if nothing would use them
        self.transactions: AttemptTransactions | None = None
        if self.middlewares or self.work_type.takes_context or self.work_type.settings.atomic:
            delivery, work_type, _, services = self.attempt
            self.transactions = AttemptTransactions(delivery, work_type, services, stored)
            self.context = Context(assignment_of(delivery.row), services, delivery.signal, self.transactions)

    @property
    def may_query_before(self) -> bool:
        """Whether code of the project's that makes the block of the attempt may query."""
        options = self.attempt.delivery.options
        return bool(log_hooks(self.work_type) or (propagators and (options.released or options.blocked)))

    @property
    def is_completing(self) -> bool:
        """Whether the work's thread may still commit the outcome, as ``ctx.acomplete`` was cancelled."""
        return self.transactions is not None and self.transactions.is_completing

    def logged(self) -> AbstractContextManager[None]:
        """Return the block in which log records name the attempt, and propagators surround it.

        The records of a batch name no single work.
        """
        delivery, work_type, arguments, _ = self.attempt
        block: AbstractContextManager[None] = nullcontext()
        if not self.is_batch:
            block = AttemptLogged(attempt_facts(delivery.row, work_type, arguments))
        if propagators:
            rows = [attempt.delivery.row for attempt in self.attempts]
            running = AttemptOfRows(rows, work_type, arguments, self.is_batch)
            if running.attach(block):
                block = self.attached = running
        return block

    def completed(self) -> list[Ended]:
        """Call the handler and conclude, in one transaction if the type asks for one."""
        try:
            with self.transactions or nullcontext():
                return self.concluded(self.returned())
        finally:
            if self.attempt.delivery.end_interruptions():
                self.was_interrupted = True
                forget_connections()

    def returned(self) -> Any:
        """Call the handler in this thread; an async one (of a test) on an event loop of its own."""
        try:
            return async_to_sync(self.awaited)() if self.work_type.is_async else self.called()
        finally:
            end_if_forked(self.process, f"The handler of {self.attempt.delivery}")

    async def awaited(self) -> Any:
        """Await the handler; cancel it when its time is over or all its works are asked to stop."""
        deliveries = [attempt.delivery for attempt in self.attempts]
        timeouts = [each.options.timeout for each in deliveries]
        timeout = min((seconds for seconds in timeouts if seconds is not None), default=None)
        cancellation = Cancellation(deliveries, timeout)
        try:
            with cancellation:
                return await self.acalled()
        except asyncio.CancelledError:
            if not cancellation.was_requested or AbortReason.SHUTDOWN in self.reasons():
                raise
            raise self.stop_error(timeout) from None
        finally:
            end_if_forked(self.process, f"The handler of {deliveries[0]}")

    def reasons(self) -> set[AbortReason | None]:
        """Return why the works were asked to stop."""
        return {attempt.delivery.signal.reason for attempt in self.attempts}

    def failed(self, error: BaseException) -> list[Ended]:
        """Return how each attempt ended whose handler raised: each by its own policy."""
        return [(attempt.delivery, self._ended_by(attempt, error)) for attempt in self.attempts]

    def _ended_by(self, attempt: Attempt, error: BaseException) -> Settlement | None:
        """Return how an attempt ended that raised: settled before the error came, or failed.

        The failure of a lost work is not written, unless the handler itself ended its work in the transaction
        that was then rolled back: so the work is still ours.
        """
        delivery = attempt.delivery
        warn_if_lost(delivery)
        if self.transactions is not None and delivery.settled:
            report(error, "commit", f"work {delivery.row.id} had succeeded when its handler raised")
            return self.transactions.settlement
        if isinstance(error, Aborted) and error.reason == delivery.signal.reason == AbortReason.SHUTDOWN:
            return self._noted(attempt, error, None)  # the worker gives it back: that costs no attempt
        cause = error.cause if isinstance(error, ContributionFailed) else error
        return self._noted(attempt, cause, judged(attempt, cause))

    def _noted(self, attempt: Attempt, error: BaseException, ended: Settlement | None) -> Settlement | None:
        """Return how an attempt ended, after propagators were told."""
        if self.attached is not None:
            ending = ended.ending if ended is not None else None
            decision = ending if isinstance(ending, AttemptDecision) else None
            self.attached.failed(attempt.delivery.row.id, error, decision)
        return ended

    def called(self) -> Any:
        """Call a plain handler within its middlewares."""
        handler = self._call_interruptibly if self.work_type.settings.interrupt else self._call_handler
        if self.context is None or not self.middlewares:
            return handler()
        if any(map(is_async, self.middlewares)):
            look_up(self.context)
        return surrounded(handler, self.middlewares, self.context)()

    async def acalled(self) -> Any:
        """Await an async handler within its middlewares."""
        if self.context is None:
            return await self._call_handler()
        options = self.attempt.delivery.options
        if options.released or options.blocked:
            await in_thread(partial(look_up, self.context))
        return await surrounded(self._call_handler, self.middlewares, self.context, awaits=True)()

    def _call_interruptibly(self) -> Any:
        return self.attempt.delivery.interruptible().call(self._call_handler)

    # A batch does the following differently.

    def _call_handler(self) -> Any:
        if self.work_type.takes_context:
            return self.work_type.handler(self.context, **self.attempt.arguments)
        return self.work_type.handler(**self.attempt.arguments)

    def stop_error(self, timeout: float | None) -> AyeworkError:
        """Return the error for the reason why the cancelled handler was asked to stop."""
        return self.attempt.delivery.abort_error()

    def concluded(self, returned: object) -> list[Ended]:
        """Return how the attempt ended whose handler returned."""
        return [(self.attempt.delivery, self.settlement(self.attempt, returned))]

    def settlement(self, attempt: Attempt, output: Any) -> Settlement:
        """Return the settlement of an output. Raises for an output that cannot be carried out."""
        if self.transactions is not None and self.context is not None:
            return self.transactions.conclude(self.context, output)
        return settlement_of(self.work_type, attempt.delivery, output)


def look_up(context: Context) -> None:
    """Read before the call what the context would read during it: an event loop must not wait."""
    _ = context.dependents, context.blockers


class BatchCall(HandlerCall):
    """The call of a handler for the attempts of a batch. Batches have no context and no middlewares."""

    is_batch = True

    def _call_handler(self) -> Any:
        rows = [attempt.delivery.row for attempt in self.attempts]
        inputs = [attempt.arguments[INPUT] for attempt in self.attempts]
        items = [BatchItem(input, row.id, row.attempt) for row, input in zip(rows, inputs, strict=True)]
        return self.work_type.handler(items)

    def stop_error(self, timeout: float | None) -> AyeworkError:
        """Return the error for the reason why the cancelled handler was asked to stop."""
        if AbortReason.TIMEOUT not in self.reasons():
            return self.attempt.delivery.abort_error()
        return AttemptTimeout(
            f"the batch ran longer than {timeout} seconds, the shortest timeout of its works."
        )

    def concluded(self, returned: object) -> list[Ended]:
        """Return how each attempt ended; an output that fails fails its work alone."""
        ended: list[Ended] = []
        settlement: Settlement | None
        outputs = require_outputs(self.work_type, returned, len(self.attempts))
        for attempt, output in zip(self.attempts, outputs, strict=True):
            try:
                settlement = self.settlement(attempt, output)
            except BaseException as error:  # asyncio.gather gives CancelledError, too
                settlement = self._noted(attempt, error, judged(attempt, error))
            ended.append((attempt.delivery, settlement))
        return ended

    def settlement(self, attempt: Attempt, output: Any) -> Settlement:
        """Return the settlement of an output; raise an output that is an exception."""
        if isinstance(output, BaseException):
            raise output
        delivery = attempt.delivery
        success = success_of_value(output, delivery.row, attempt.work_type)
        return Settlement(delivery.row, success, seconds=delivery.seconds)


def judged(attempt: Attempt, error: BaseException) -> Settlement:
    """Judge a failed attempt. Decisions of the handler and aborts are not up for advice."""
    row, is_lost = attempt.delivery.row, attempt.delivery.lost is not None
    if not attempt.work_type.is_async:  # else its thread, and the connections there, have ended
        note_connection()
    if failed_to_connect(error) == alias() and not is_lost:
        return put_off(row, error, "got no connection")
    is_explicit = isinstance(error, (Defer, Abort, Reschedule, Aborted))
    advice = None if is_explicit or is_lost else advice_on(attempt, error)
    retry_input = retry_input_of(row, clock.now())
    unintended = None if is_explicit else error
    try:
        decision = decide_failure(error, advice, retry_input)
    except (TypeError, ValueError) as unusable:
        decision, unintended = decide_failure(unusable, None, retry_input), unusable
    if unintended is not None and decision.outcome is not Outcome.DEFERRED:
        attempt.services.note_failure(row.id, unintended)
    traceback = "" if isinstance(error, Defer) else traceback_of(error)
    return Settlement(row, decision, traceback, class_path(error), attempt.delivery.seconds)


def escaped(delivery: Delivery, error: BaseException) -> Settlement | None:
    """Return how an attempt ended that an error outside of its handler has ended before it could conclude.

    The engine may fail on what the handler has raised, and asyncio closes a coroutine that meets a
    GeneratorExit from a thread or a task. A worker that stops gives the work back.
    """
    is_given_back = delivery.signal.reason is AbortReason.SHUTDOWN
    if delivery.settled or delivery.started_at is None or is_given_back:
        return None
    decision = decide_failure(error, None, retry_input_of(delivery.row, clock.now()))
    return Settlement(delivery.row, decision, traceback_of(error), class_path(error), delivery.seconds)


def advice_hook(work_type: AnyWorkType) -> Any:
    """Return the type's ``on_failure``, else the settings'."""
    return work_type.settings.on_failure or get_settings().on_failure


def advice_on(attempt: Attempt, error: BaseException) -> Any:
    """Ask ``on_failure``, plain or async; one that raises is reported and advises nothing."""
    hook = advice_hook(attempt.work_type)
    if hook is None:
        return None
    row = attempt.delivery.row
    info = FailureInfo(row.id, row.type, row.group, row.attempt, attempt.delivery.options.retry.attempts)
    try:
        advice = answer_of(hook, error, info)
        if advice is None or advice in ("retry", "abort") or isinstance(advice, (Defer, Abort, Reschedule)):
            return advice
        answers = "'retry', 'abort', Defer(...), Reschedule(...), Abort(...) or None"
        wrong = f"expected on_failure to answer {answers}, got: {advice!r}."
        raise type_error("on-failure-answer", wrong)
    except BaseException as raised:
        report(raised, "commit", f"on_failure of {row.type} failed")
        return None
