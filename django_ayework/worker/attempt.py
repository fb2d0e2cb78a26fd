"""One attempt: resolve the type, open the input, run the handler, conclude."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import CoroutineType
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

from django_ayework.conf import get_settings
from django_ayework.define.context import AbortReason, Context
from django_ayework.define.handles import FailureInfo, Kind
from django_ayework.define.instructions import MESSAGES, is_list_of_works
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.errors import Abort, Aborted, Defer, Reschedule
from django_ayework.flow.events import (
    announce,
    attempt_facts,
    has_receivers,
    log_hooks,
    report,
    resolved_hook,
    work_event,
)
from django_ayework.flow.outcomes import retry_input_of, success_of_value
from django_ayework.flow.payloads import read_input
from django_ayework.flow.services import EngineServices, WaitedFor, assignment_of
from django_ayework.flow.settle import Settlement
from django_ayework.flow.unit_of_work import ContributionFailed
from django_ayework.logs import AttemptFacts, attempt_logged
from django_ayework.rules.decisions import (
    AttemptDecision,
    cut_traceback,
    die,
    error_text,
    expire,
    has_expired,
    if_renamed,
    judge,
    unknown_since,
)
from django_ayework.rules.states import Outcome, Reason
from django_ayework.store.clock import clock
from django_ayework.store.connections import failed_to_connect
from django_ayework.store.database import alias
from django_ayework.store.rows import WorkRow
from django_ayework.worker.delivery import Cancellation, Delivery
from django_ayework.worker.handlers import (
    asurrounded,
    is_async,
    middlewares_of,
    require_none_dropped,
    surrounded,
)
from django_ayework.worker.transactions import AttemptTransactions

# --- attempt ---
# One attempt, as a pipeline: resolve the type, open the input, run the handler, conclude.

logger = logging.getLogger("django_ayework")

#: Seconds, and up to twice as many, until a work is tried again whose handler got no connection.
UNCONNECTED_FOR = 2.0


class Opened(NamedTuple):
    """An attempt that is ready to run."""

    delivery: Delivery
    work_type: AnyWorkType
    context: Context
    arguments: dict[str, Any]
    stages: AttemptTransactions
    waited_for: WaitedFor

    @classmethod
    def of(
        cls,
        delivery: Delivery,
        work_type: AnyWorkType,
        arguments: dict[str, Any],
        services: EngineServices,
        stored: bool = True,
    ) -> Opened:
        """Make what its handler may be given."""
        stages = AttemptTransactions(delivery, work_type, services, stored)
        waited_for = WaitedFor(delivery.row)
        assignment = assignment_of(delivery.row, waited_for)
        context = Context(assignment, services, delivery.signal, stages)
        return cls(delivery, work_type, context, arguments, stages, waited_for)

    def call(self) -> Any:
        """Call a plain handler within its middlewares."""
        interrupt = self.work_type.settings.interrupt
        handler = self.call_interruptibly if interrupt else self.call_handler
        middlewares = middlewares_of(self.work_type)
        if any(map(is_async, middlewares)):
            self.waited_for.look_up()
        return surrounded(handler, middlewares, self.context)

    async def acall(self) -> Any:
        """Await an async handler within its middlewares.

        What the work had waited for is read before, in the work's thread: the event loop must not wait.
        """
        options, middlewares = self.delivery.options, middlewares_of(self.work_type)
        if (options.released or options.blocked) and (self.work_type.takes_context or middlewares):
            await sync_to_async(self.waited_for.look_up)()
        return await asurrounded(self.call_handler, middlewares, self.context)

    def call_interruptibly(self) -> Any:
        """Call the handler itself; an abort may be raised inside it."""
        return self.delivery.interruptible().call(self.call_handler)

    def call_handler(self) -> Any:
        """Call the handler itself."""
        leading = (self.context,) if self.work_type.takes_context else ()
        return self.work_type.handler(*leading, **self.arguments)


def opened(delivery: Delivery, services: EngineServices, stored: bool = True) -> Opened | Settlement:
    """Return the attempt ready to run, or how it ended before it could: expired, unknown, unreadable.

    ``stored`` tells whether the work is in the database.
    """
    row = delivery.row
    if row.deadline is not None and has_expired(row.deadline, clock.now()):
        return Settlement(row, uncounted(expire()))
    work_type = registry.find(row.type)
    if work_type is None:
        return Settlement(row, uncounted(die(Reason.UNKNOWN_TYPE, unknown_text(row.type))))
    try:
        arguments = work_type.arguments(read_input(row, work_type))
    except BaseException as error:  # a codec of the project's own may raise anything
        services.note_failure(row.id, error)
        return Settlement(row, die(Reason.BAD_INPUT, error_text(error)))
    announce_start(row)
    return Opened.of(delivery, work_type, arguments, services, stored)


async def aopened(delivery: Delivery, services: EngineServices) -> Opened | Settlement:
    """See opened(); receivers of its signal are plain code and may query: they run in the work's thread."""
    if has_receivers(Kind.STARTED, delivery.row.type):
        return await sync_to_async(opened)(delivery, services)
    return opened(delivery, services)


def uncounted(decision: AttemptDecision) -> AttemptDecision:
    """Return the verdict of a work whose handler never ran: the claim's attempt is given back."""
    return replace(decision, counts=False)


def unknown_text(type: str) -> str:
    """Return what a work of an unknown type dies of."""
    return (
        f"unknown work type: no worker knew {type!r} within AYEWORK['UNKNOWN_TYPE_GRACE']; "
        "install the app that defines it, then retry this work. "
        f"{if_renamed(type, registry.names())} {registry.loaded()}"
    )


def is_parked(row: WorkRow) -> bool:
    """Tell whether a work of a type unknown here should be offered to others rather than die."""
    if registry.find(row.type) is not None:
        return False
    now = clock.now()
    if has_expired(row.deadline, now):
        return False
    grace = timedelta(seconds=get_settings().unknown_type_grace)
    return now - unknown_since(row.error, now) < grace


def announce_start(row: WorkRow) -> None:
    """Tell that the attempt starts; its claim has committed."""
    if has_receivers(Kind.STARTED, row.type):
        announce(work_event(Kind.STARTED, row, clock.now()))


def facts_of(attempt: Opened) -> AttemptFacts:
    """Return what log records say of an attempt."""
    return attempt_facts(attempt.delivery.row, attempt.work_type, attempt.arguments)


async def afacts_of(attempt: Opened) -> AttemptFacts:
    """See facts_of(); the hooks it asks may query."""
    return await sync_to_async(facts_of)(attempt) if log_hooks(attempt.work_type) else facts_of(attempt)


def carried_out(attempt: Opened, call: Callable[[Opened], Any] = Opened.call) -> Settlement:
    """Call the handler and conclude, in one transaction where its mode wants one."""
    try:
        with attempt.stages:
            return attempt.stages.conclude(attempt.context, call(attempt))
    finally:
        attempt.delivery.tidy_up()


def run(
    delivery: Delivery,
    services: EngineServices,
    carry_out: Callable[[Opened], Settlement] = carried_out,
) -> Settlement | None:
    """Run an attempt in this thread; return how it ended.

    What ``delivery.settled`` tells is written already. ``carry_out`` is another way to call the handler.
    """
    attempt = opened(delivery, services)
    if isinstance(attempt, Settlement):
        return attempt
    with attempt_logged(facts_of(attempt)):
        try:
            return carry_out(attempt)
        except BaseException as error:
            require_recordable(error)
            return ended_by(attempt, error)


async def arun(delivery: Delivery, services: EngineServices) -> Settlement | None:
    """Run an attempt of an async handler on the event loop; see run()."""
    attempt = await aopened(delivery, services)
    if isinstance(attempt, Settlement):
        return attempt
    with attempt_logged(await afacts_of(attempt)):
        try:
            return attempt.stages.conclude(attempt.context, await awaited(attempt))
        except asyncio.CancelledError as error:
            if delivery.signal.reason is AbortReason.SHUTDOWN:
                raise
            return await aended_by(attempt, error)
        except BaseException as error:
            return await aended_by(attempt, error)


async def awaited(attempt: Opened) -> Any:
    """Await the handler; cancel it when its time is over, or when it is asked to stop."""
    delivery = attempt.delivery
    cancellation = Cancellation([delivery], delivery.options.timeout)
    try:
        with cancellation:
            return await attempt.acall()
    except asyncio.CancelledError:
        if not cancellation.was_requested or delivery.signal.reason is AbortReason.SHUTDOWN:
            raise
        raise delivery.abort_error() from None


def require_recordable(error: BaseException) -> None:
    """Raise Ctrl-C again that stops a test which drains: it comes in the main thread, where no worker runs.

    Anything else that a handler raises, KeyboardInterrupt in a thread of a worker too, ends its attempt.
    """
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


def ended_by(attempt: Opened, error: BaseException) -> Settlement | None:
    """Return how an attempt ended that raised: settled before the error came, or failed.

    One that lost its work has failed too, which nobody will write down. Unless the handler itself ended its
    work, in the transaction that was then rolled back: so the work is still ours.
    """
    delivery = attempt.delivery
    if delivery.lost is not None:
        logger.warning("Work %s was lost while it ran: %s.", delivery.row.id, delivery.lost)
    if delivery.settled:
        report(error, "commit", f"work {delivery.row.id} had succeeded when its handler raised")
        return attempt.stages.settlement
    if isinstance(error, Aborted) and error.reason == delivery.signal.reason == AbortReason.SHUTDOWN:
        return None  # the worker gives it back, and that costs no attempt
    return failed(attempt, error.cause if isinstance(error, ContributionFailed) else error)


async def aended_by(attempt: Opened, error: BaseException) -> Settlement | None:
    """See ended_by(); a hook that advises is plain code and may query, so it runs in the work's thread."""
    if advice_hook(attempt.work_type) is None:
        return ended_by(attempt, error)
    return await sync_to_async(ended_by)(attempt, error)


def failed(attempt: Opened, error: BaseException) -> Settlement:
    """Judge a failed attempt; there is no advice on what the handler decided, nor on an abort."""
    if failed_to_connect(error) == alias() and not attempt.delivery.lost:
        return unconnected(attempt.delivery.row, error)
    explicit = isinstance(error, (Defer, Abort, Reschedule, Aborted))
    advice = None if explicit or attempt.delivery.lost else advice_on(attempt, error)
    retry_input = retry_input_of(attempt.delivery.row, clock.now())
    unintended = None if explicit else error
    try:
        decision = judge(error, advice, retry_input)
    except (TypeError, ValueError) as unusable:
        decision, unintended = judge(unusable, None, retry_input), unusable
    if unintended is not None and decision.outcome is not Outcome.DEFERRED:
        attempt.stages.services.note_failure(attempt.delivery.row.id, unintended)
    story = "" if isinstance(error, Defer) else "".join(traceback.format_exception(error))
    return Settlement(attempt.delivery.row, decision, cut_traceback(story))


def unconnected(row: WorkRow, error: BaseException) -> Settlement:
    """Put off a work whose handler got no connection to the queue's database: that costs no attempt.

    The server is full or away, or the project's pool is empty: for all works alike.
    """
    delay = UNCONNECTED_FOR * random.uniform(1.0, 2.0)  # noqa: S311  # spreads them
    report(error, "queue", f"work {row.id} got no connection; it is tried again in {delay:.0f} s", brief=True)
    return Settlement(row, judge(Defer(delay=delay), None, retry_input_of(row, clock.now())))


def escaped(delivery: Delivery, error: BaseException) -> Settlement | None:
    """Return how an attempt ended that an error has torn down, so that nothing concludes it.

    asyncio closes a coroutine that meets a GeneratorExit from a thread or a task.
    """
    if delivery.settled or delivery.started_at is None:
        return None
    decision = judge(error, None, retry_input_of(delivery.row, clock.now()))
    return Settlement(delivery.row, decision, cut_traceback("".join(traceback.format_exception(error))))


def advice_hook(work_type: AnyWorkType) -> Any:
    """Return the type's ``on_failure``, else the settings'."""
    return work_type.settings.on_failure or get_settings().on_failure


def advice_on(attempt: Opened, error: BaseException) -> Any:
    """Ask ``on_failure``, plain or async; one that raises is reported and advises nothing."""
    hook = advice_hook(attempt.work_type)
    if hook is None:
        return None
    row = attempt.delivery.row
    info = FailureInfo(row.id, row.type, row.group, row.attempt, attempt.delivery.options.retry.attempts)
    try:
        ask = resolved_hook(hook)
        return require_advice((async_to_sync(ask) if iscoroutinefunction(ask) else ask)(error, info))
    except BaseException as raised:
        report(raised, "commit", f"on_failure of {row.type} failed")
        return None


def require_advice(advice: Any) -> Any:
    """Return what ``on_failure`` answered, if it is an answer."""
    if advice is None or advice in ("retry", "abort") or isinstance(advice, (Defer, Abort, Reschedule)):
        return advice
    raise TypeError(f"expected on_failure to answer 'retry', 'abort', Defer(...) or None, got: {advice!r}.")


# --- short way ---
# The short way through an attempt, for handlers that are shown nothing of the engine and return a value.
#
# Most handlers are like that, and for those there is no context to make, and no transaction to look
# after.
# Whatever turns up that is not as expected goes the whole way, see ``attempt``.

#: What a handler may return that is no value to be stored.
NO_VALUES = (*MESSAGES, CoroutineType)


def run_shortest(delivery: Delivery, services: EngineServices) -> Settlement | None:
    """Run an attempt in this thread, the short way if that can be; see :func:`attempt.run`."""
    work_type = registry.find(delivery.row.type)
    if work_type is None or not may_go_short(delivery, work_type):
        return run(delivery, services)
    try:
        arguments = work_type.arguments(read_input(delivery.row, work_type))
    except BaseException:
        return run(delivery, services)
    return run_short(delivery, work_type, arguments, services)


def may_go_short(delivery: Delivery, work_type: AnyWorkType) -> bool:
    """Tell whether nobody but the handler has a part in the attempt, and that only sees its arguments."""
    settings = get_settings()
    return (
        work_type.is_shown_nothing
        and delivery.row.deadline is None
        and not settings.middleware
        and settings.log_context is None
        and not has_receivers(Kind.STARTED, work_type.name)
    )


def run_short(
    delivery: Delivery, work_type: AnyWorkType, arguments: dict[str, Any], services: EngineServices
) -> Settlement | None:
    """Call the handler and conclude from what it returned; what is no value takes a context to judge."""
    row = delivery.row
    with attempt_logged(AttemptFacts(row.id, row.type, row.attempt, row.group)):
        try:
            returned = work_type.handler(**arguments)
            require_none_dropped(work_type, row)
            if isinstance(returned, NO_VALUES) or is_list_of_works(returned):
                attempt = Opened.of(delivery, work_type, arguments, services)
                return attempt.stages.conclude(attempt.context, returned)
            return Settlement(row, success_of_value(returned, row, work_type))
        except BaseException as error:
            return ended_by(Opened.of(delivery, work_type, arguments, services), error)
