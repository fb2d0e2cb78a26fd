"""One attempt, as a pipeline: resolve the type, open the input, run the handler, conclude."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.context import Assignment, Context, ContextServices
from django_ayework.define.events import FailureInfo, Kind
from django_ayework.define.plans import plan_of
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.define.signal import AbortReason
from django_ayework.define.signature import bind
from django_ayework.errors import Abort, AttemptTimeout, Defer, InvalidInstruction, Reschedule
from django_ayework.flow.events import announce, is_heard, report, resolved_hook, work_event
from django_ayework.flow.outcomes import success_from
from django_ayework.flow.payloads import codec_of, decode_input
from django_ayework.flow.settle import Settlement
from django_ayework.flow.trials import trial_of
from django_ayework.rules.deadlines import has_expired
from django_ayework.rules.states import Reason
from django_ayework.rules.unknown import unknown_since
from django_ayework.rules.verdicts import Verdict, die, error_text, expire, judge, storable
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow
from django_ayework.worker.delivery import Delivery


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt that is ready to run."""

    delivery: Delivery
    work_type: AnyWorkType
    context: Context
    arguments: dict[str, Any]

    def call(self) -> Any:
        """Call the handler."""
        leading = (self.context,) if self.work_type.takes_context else ()
        return self.work_type.handler(*leading, **self.arguments)


def opened(delivery: Delivery, services: ContextServices) -> Opened | Settlement:
    """Return the attempt ready to run, or how it ended before it could: expired, unknown, unreadable."""
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
    context = Context(assignment_of(delivery), services, delivery.signal)
    announce_start(row)
    return Opened(delivery, work_type, context, arguments)


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


def assignment_of(delivery: Delivery) -> Assignment:
    """Return the facts a handler may read."""
    row = delivery.row
    return Assignment(
        id=row.id,
        type=row.type,
        group_id=row.group,
        chain_id=row.chain,
        attempt=row.attempt,
        parent=row.parent_id,
        dependents=delivery.dependents,
        blockers=delivery.blockers,
        last_error=row.error or None,
        deadline=row.deadline,
    )


def announce_start(row: WorkRow) -> None:
    """Tell that the attempt starts; its claim has committed."""
    if is_heard(Kind.STARTED, row.type):
        announce(work_event(Kind.STARTED, row, clock.now()))


def run(
    delivery: Delivery, services: ContextServices, call: Callable[[Opened], Any] = Opened.call
) -> Settlement:
    """Run an attempt in this thread; ``call`` calls the handler."""
    attempt = opened(delivery, services)
    if isinstance(attempt, Settlement):
        return attempt
    try:
        return concluded(attempt, call(attempt))
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        return failed(attempt, error)


async def arun(delivery: Delivery, services: ContextServices) -> Settlement:
    """Run an attempt of an async handler on the event loop."""
    attempt = opened(delivery, services)
    if isinstance(attempt, Settlement):
        return attempt
    try:
        return concluded(attempt, await awaited(attempt))
    except asyncio.CancelledError as error:
        if delivery.signal.reason is AbortReason.SHUTDOWN:
            raise
        return failed(attempt, error)
    except (Exception, SystemExit) as error:
        return failed(attempt, error)


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


def concluded(attempt: Opened, returned: Any) -> Settlement:
    """Turn what the handler returned into what is to be written; what cannot be stored fails the attempt."""
    require_plain(attempt, returned)
    own = attempt.work_type.settings.strict_return
    strict = get_settings().strict_return if own is None else own
    plan = plan_of(returned, attempt.context, strict)
    return Settlement(attempt.delivery.row, success_from(plan, attempt.delivery.row))


def require_plain(attempt: Opened, returned: Any) -> None:
    """Raise when a plain function returned a coroutine, which nobody would await."""
    if inspect.iscoroutine(returned):
        returned.close()
        raise InvalidInstruction(
            f"the handler of {attempt.work_type.name!r} is a plain function that returned a coroutine; "
            "declare it with async def."
        )


def failed(attempt: Opened, error: BaseException) -> Settlement:
    """Judge a failed attempt."""
    explicit = isinstance(error, (Defer, Abort, Reschedule))
    advice = None if explicit else advice_on(attempt, error)
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
