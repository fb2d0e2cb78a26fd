"""One run of a batch: open each work, call the handler once, conclude each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from asgiref.sync import sync_to_async

from django_ayework.define.context import AbortReason
from django_ayework.define.registry import AnyWorkType
from django_ayework.define.types import INPUT, BatchItem
from django_ayework.errors import AttemptTimeout, InvalidInstruction
from django_ayework.flow.outcomes import success_of_value
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement
from django_ayework.worker.attempt import Opened, advice_hook, failed, opened, require_recordable
from django_ayework.worker.delivery import Cancellation, Delivery
from django_ayework.worker.handlers import require_plain

# --- batch ---
# Works of one type that run together: one call of the handler, in one slot.


class Batch:
    """Deliveries of one batch type."""

    def __init__(self, deliveries: Iterable[Delivery]) -> None:
        self.deliveries = tuple(deliveries)
        self._runs: bool | None = None

    @property
    def type(self) -> str:
        """The name of the type."""
        return self.deliveries[0].row.type

    def start(self) -> bool:
        """Mark the attempts as started, once; False when none is left to run.

        Works that were given back, or lost while they waited, are left out.
        """
        if self._runs is None:
            started = [each.start() for each in self.deliveries if not each.signal.aborted]
            self._runs = any(started)
        return self._runs

    def __str__(self) -> str:
        return f"a batch of {len(self.deliveries)} {self.type}"


# --- running ---
# One run of a batch, as a pipeline: open each work, call the handler once, conclude each by itself.

#: How the attempt of one delivery ended; None when that is not for us to write.
Ended: TypeAlias = tuple[Delivery, Settlement | None]


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Attempts of one type that are ready to run together; there is at least one."""

    attempts: Sequence[Opened]

    @property
    def work_type(self) -> AnyWorkType:
        """The type of the works."""
        return self.attempts[0].work_type

    def call(self) -> Any:
        """Call the handler."""
        return self.work_type.handler([item_of(attempt) for attempt in self.attempts])


def run_batch(
    batch: Batch, services: EngineServices, call: Callable[[BatchRun], Any] = BatchRun.call
) -> list[Ended]:
    """Run a batch in this thread; return how each of its attempts ended.

    ``call`` is another way to call the handler.
    """
    run, ended = opened_batch(batch, services)
    if run is None:
        return ended
    try:
        return ended + concluded(run, call(run))
    except BaseException as error:
        require_recordable(error)
        return ended + all_failed(run, error)


async def arun_batch(batch: Batch, services: EngineServices) -> list[Ended]:
    """Run a batch whose handler is async on the event loop; see run_batch()."""
    run, ended = opened_batch(batch, services)
    if run is None:
        return ended
    try:
        return ended + await advised(run, concluded, await awaited_run(run))
    except asyncio.CancelledError as error:
        if any(attempt.delivery.signal.reason is AbortReason.SHUTDOWN for attempt in run.attempts):
            raise
        return ended + await advised(run, all_failed, error)
    except BaseException as error:
        return ended + await advised(run, all_failed, error)


def opened_batch(batch: Batch, services: EngineServices) -> tuple[BatchRun | None, list[Ended]]:
    """Return what is ready to run, if anything is, and how the rest ended before it could."""
    ended: list[Ended] = [(each, None) for each in batch.deliveries if each.started_at is None]
    attempts = []
    for delivery in batch.deliveries:
        if delivery.started_at is not None:
            attempt = opened(delivery, services)
            if isinstance(attempt, Opened):
                attempts.append(attempt)
            else:
                ended.append((delivery, attempt))
    return BatchRun(attempts) if attempts else None, ended


def item_of(attempt: Opened) -> BatchItem[Any]:
    """Return what the handler is shown of one work."""
    row = attempt.delivery.row
    return BatchItem(attempt.arguments[INPUT], row.id, row.attempt)


async def awaited_run(run: BatchRun) -> Any:
    """Await the handler; the shortest ``timeout`` of the works cancels it, or that all are to stop."""
    timeouts = [attempt.delivery.options.timeout for attempt in run.attempts]
    shortest = min((seconds for seconds in timeouts if seconds is not None), default=None)
    deliveries = [attempt.delivery for attempt in run.attempts]
    cancellation = Cancellation(deliveries, shortest)
    try:
        with cancellation:
            return await run.call()
    except asyncio.CancelledError:
        reasons = {delivery.signal.reason for delivery in deliveries}
        if not cancellation.was_requested or AbortReason.SHUTDOWN in reasons:
            raise
        if AbortReason.TIMEOUT not in reasons:
            raise deliveries[0].abort_error() from None
        raise AttemptTimeout(
            f"the batch ran longer than {shortest} seconds, the shortest timeout of its works."
        ) from None


def concluded(run: BatchRun, returned: object) -> list[Ended]:
    """Return how each attempt ended whose handler returned; raise when outputs and items do not match."""
    outputs = require_outputs(run, returned)
    pairs = zip(run.attempts, outputs, strict=True)
    return [(attempt.delivery, settlement_of(attempt, output)) for attempt, output in pairs]


def require_outputs(run: BatchRun, returned: object) -> Sequence[Any]:
    """Return what the handler returned, if that is one output per item."""
    require_plain(run.work_type, returned)
    expected = len(run.attempts)
    found = f"a non-list ({returned!r:.80})"
    if isinstance(returned, (list, tuple)):
        if len(returned) == expected:
            return returned
        found = f"{len(returned)} outputs"
    raise InvalidInstruction(
        f'batch "{run.work_type.name}" returned {found} for {expected} inputs; '
        "return a list with one output per item, in the same order."
    )


def settlement_of(attempt: Opened, output: Any) -> Settlement:
    """Return how one attempt ended: an exception fails it, and it alone."""
    if isinstance(output, BaseException):  # asyncio.gather gives CancelledError, too
        return failed(attempt, output)
    try:
        row = attempt.delivery.row
        return Settlement(row, success_of_value(output, row, attempt.work_type))
    except BaseException as error:  # the output cannot be stored
        return failed(attempt, error)


def all_failed(run: BatchRun, error: BaseException) -> list[Ended]:
    """Return how each attempt ended whose handler raised: each by its own policy."""
    return [(attempt.delivery, failed(attempt, error)) for attempt in run.attempts]


async def advised(run: BatchRun, end: Callable[[BatchRun, Any], list[Ended]], how: Any) -> list[Ended]:
    """End a run; a hook that advises on failures is plain code and may query, so that takes a thread."""
    if advice_hook(run.work_type) is None:
        return end(run, how)
    return await sync_to_async(end)(run, how)
