"""One attempt, as a pipeline: resolve the type, open the input, run the handler, conclude."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.context import Context
from django_ayework.define.events import FailureInfo, Kind
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.define.signal import AbortReason
from django_ayework.define.signature import bind
from django_ayework.errors import Abort, AttemptTimeout, Defer, Reschedule
from django_ayework.flow.assignments import assignment_of
from django_ayework.flow.events import announce, is_heard, report, resolved_hook, work_event
from django_ayework.flow.group_books import ContributionFailed
from django_ayework.flow.payloads import codec_of, decode_input
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement
from django_ayework.flow.trials import trial_of
from django_ayework.rules.deadlines import has_expired
from django_ayework.rules.states import Reason
from django_ayework.rules.unknown import unknown_since
from django_ayework.rules.verdicts import Verdict, die, error_text, expire, judge, storable
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.stages import Stages

logger = logging.getLogger("django_ayework")


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt that is ready to run."""

    delivery: Delivery
    work_type: AnyWorkType
    context: Context
    arguments: dict[str, Any]
    stages: Stages

    def call(self) -> Any:
        """Call the handler."""
        leading = (self.context,) if self.work_type.takes_context else ()
        return self.work_type.handler(*leading, **self.arguments)


def opened(delivery: Delivery, services: EngineServices, stored: bool = True) -> Opened | Settlement:
    """Return the attempt ready to run, or how it ended before it could: expired, unknown, unreadable.

    ``stored`` tells whether the work is in the database.
    """
    row = delivery.row
    if has_expired(row.deadline, clock.now()):
        return Settlement(row, uncounted(expire()))
    work_type = registry.find(row.type)
    if work_type is None:
        return Settlement(row, uncounted(die(Reason.UNKNOWN_TYPE, unknown_text(row.type))))
    try:
        arguments = bind(work_type.signature, row.type, (), decode_input(row.input, codec_of(work_type)))
    except Exception as error:  # a codec of the project's own may raise anything
        return Settlement(row, die(Reason.BAD_INPUT, error_text(error)))
    stages = Stages(delivery, work_type, services, stored)
    context = Context(
        assignment_of(row, delivery.dependents, delivery.blockers), services, delivery.signal, stages
    )
    announce_start(row)
    return Opened(delivery, work_type, context, arguments, stages)


def uncounted(verdict: Verdict) -> Verdict:
    """Return the verdict of a work whose handler never ran: the claim's attempt is given back."""
    return replace(verdict, counts=False)


def unknown_text(type: str) -> str:
    """Return what a work of an unknown type dies of."""
    return (
        f"unknown work type: no worker knew {type!r} within AYEWORK['UNKNOWN_TYPE_GRACE']; "
        "install the app that defines it, then retry this work"
    )


def is_parked(row: WorkRow) -> bool:
    """Tell whether a work of a type unknown here should be offered to others rather than die."""
    now = clock.now()
    if registry.find(row.type) is not None or has_expired(row.deadline, now):
        return False
    grace = timedelta(seconds=get_settings().unknown_type_grace)
    return now - unknown_since(row.error, now) < grace


def announce_start(row: WorkRow) -> None:
    """Tell that the attempt starts; its claim has committed."""
    if is_heard(Kind.STARTED, row.type):
        announce(work_event(Kind.STARTED, row, clock.now()))


def carried_out(attempt: Opened, call: Callable[[Opened], Any] = Opened.call) -> Settlement:
    """Call the handler and conclude, in one transaction where its mode wants one."""
    with attempt.stages.around():
        return attempt.stages.conclude(attempt.context, call(attempt))


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
    try:
        return carry_out(attempt)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        return ended_by(attempt, error)


async def arun(delivery: Delivery, services: EngineServices) -> Settlement | None:
    """Run an attempt of an async handler on the event loop; see run()."""
    attempt = opened(delivery, services)
    if isinstance(attempt, Settlement):
        return attempt
    try:
        return attempt.stages.conclude(attempt.context, await awaited(attempt))
    except asyncio.CancelledError as error:
        if delivery.signal.reason is AbortReason.SHUTDOWN:
            raise
        return ended_by(attempt, error)
    except (Exception, SystemExit) as error:
        return ended_by(attempt, error)


async def awaited(attempt: Opened) -> Any:
    """Await the handler, cancelling it for real when it runs out of time."""
    timeout = attempt.delivery.options.timeout
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            returned: Awaitable[Any] = attempt.call()
            return await returned
    except TimeoutError:
        if not limit.expired():
            raise
        attempt.delivery.abort(AbortReason.TIMEOUT)
        raise AttemptTimeout(f"the attempt ran longer than its timeout of {timeout} seconds.") from None


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
    return failed(attempt, error.cause if isinstance(error, ContributionFailed) else error)


def failed(attempt: Opened, error: BaseException) -> Settlement:
    """Judge a failed attempt."""
    explicit = isinstance(error, (Defer, Abort, Reschedule))
    advice = None if explicit or attempt.delivery.lost else advice_on(attempt, error)
    trial = trial_of(attempt.delivery.row, clock.now())
    try:
        verdict = judge(error, advice, trial)
    except (TypeError, ValueError) as unusable:
        verdict = judge(unusable, None, trial)
    story = "" if isinstance(error, Defer) else "".join(traceback.format_exception(error))
    return Settlement(attempt.delivery.row, verdict, storable(story))


def advice_on(attempt: Opened, error: BaseException) -> Any:
    """Ask the type's ``on_failure``, else the settings'; one that raises is reported and advises nothing."""
    hook = attempt.work_type.settings.on_failure or get_settings().on_failure
    if hook is None:
        return None
    row = attempt.delivery.row
    info = FailureInfo(row.id, row.type, row.group, row.attempt, attempt.delivery.options.retry.attempts)
    try:
        return require_advice(resolved_hook(hook)(error, info))
    except Exception as raised:
        report(raised, "commit", f"on_failure of {row.type} failed")
        return None


def require_advice(advice: Any) -> Any:
    """Return what ``on_failure`` answered, if it is an answer."""
    if advice is None or advice in ("retry", "abort") or isinstance(advice, (Defer, Abort, Reschedule)):
        return advice
    raise TypeError(f"expected on_failure to answer 'retry', 'abort', Defer(...) or None, got: {advice!r}.")
