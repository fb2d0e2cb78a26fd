"""When a worker claims less or nothing: its own limits, backpressure, acceptance, unknown types."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from asgiref.sync import async_to_sync

from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.flow.events import report, resolved_hook
from django_ayework.flow.settle import Settlement, Success
from django_ayework.flow.states import state_of
from django_ayework.heartbeat import project_code
from django_ayework.rules.durations import later
from django_ayework.rules.health import PressureInfo
from django_ayework.rules.retry import OFFER_AGAIN
from django_ayework.rules.states import Outcome
from django_ayework.rules.texts import if_renamed, parked_again
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.rows import WorkRow
from django_ayework.worker.attempt import is_parked
from django_ayework.worker.delivery import Delivery
from django_ayework.worker.threads import resident_bytes

# --- limits ---
# When a worker has done enough, and makes room for another process.

logger = logging.getLogger("django_ayework")

MEGABYTE = 2**20
#: Seconds between two looks at the memory.
LOOK_EVERY = 1.0


class Limits:
    """``max_works`` attempts, or more than ``max_memory`` megabytes: then no work is claimed any more."""

    def __init__(self, max_works: int | None, max_memory: int | None) -> None:
        self.max_works = max_works
        self.max_memory = max_memory
        #: What was reached, in words; once it is, it stays so.
        self.reached = ""
        self._looked_at = float("-inf")

    def room(self, wanted: int, attempts: int) -> int:
        """Return how many of the wanted works may be claimed after so many attempts."""
        left = self.attempts_left(attempts)
        return wanted if left is None else min(wanted, left)

    def attempts_left(self, attempts: int) -> int | None:
        """Return how many more attempts may be made after so many; None for any number."""
        if self.reached:
            return 0
        return None if self.max_works is None else max(0, self.max_works - attempts)

    def judge(self, attempts: int, all_begun: Callable[[], bool]) -> bool:
        """Tell whether a limit is reached. Attempts count once begun: until then works may be given back."""
        if not self.reached:
            self.reached = self._by_works(attempts, all_begun) or self._by_memory()
            if self.reached:
                logger.info("The worker claims no more: %s.", self.reached)
        return bool(self.reached)

    def _by_works(self, attempts: int, all_begun: Callable[[], bool]) -> str:
        if self.max_works is None or attempts < self.max_works or not all_begun():
            return ""
        return f"{attempts} attempts were made, of {self.max_works}"

    def _by_memory(self) -> str:
        now = time.monotonic()
        if self.max_memory is None or now - self._looked_at < LOOK_EVERY:
            return ""
        self._looked_at = now
        megabytes = resident_bytes() / MEGABYTE
        if megabytes <= self.max_memory:
            return ""
        return f"{megabytes:.0f} MB are in use, more than {self.max_memory}"


# --- pressure ---
# Pressure: the hook ``BACKPRESSURE`` is asked before each claim whether to hold back, and for how long.


class Pressure:
    """Counts how attempts of this process end, and asks the hook; one worker has one."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._succeeded: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._until = float("-inf")

    def count(self, settlement: Settlement) -> None:
        """Count an attempt by its type and end, if anybody asks; a deferral is neither of both."""
        if get_settings().backpressure is None:
            return
        if not isinstance(settlement.ending, Success) and settlement.ending.outcome is Outcome.DEFERRED:
            return
        ends = self._succeeded if isinstance(settlement.ending, Success) else self._failed
        with self._lock:
            ends[settlement.row.type] += 1

    def pause(self, active: int) -> float:
        """Return for how many seconds nothing is to be claimed; 0 for go on.

        The hook is asked once before each claim, not again while its answer holds. One that raises is
        reported, and holds back for a poll.
        """
        hook = get_settings().backpressure
        left = self._until - self._seconds()
        if hook is None or left > 0:
            return max(0.0, left)
        try:
            pause = float(answer(resolved_hook(hook), self.info(active)) or 0)
        except BaseException as error:
            report(error, "queue", "BACKPRESSURE failed; nothing is claimed for a poll")
            pause = get_settings().poll_interval
        self._until = self._seconds() + pause
        return max(0.0, pause)

    def info(self, active: int) -> PressureInfo:
        """Return what the hook is given."""
        with self._lock:
            return PressureInfo(active=active, succeeded=dict(self._succeeded), failed=dict(self._failed))


def answer(hook: Callable[..., Any], info: PressureInfo) -> Any:
    """Ask the hook, which may be async."""
    asked = async_to_sync(hook) if inspect.iscoroutinefunction(hook) else hook
    with project_code():
        return asked(info)


# --- acceptance ---
# Acceptance: a worker may decline works that it has claimed, for others to take.


def accepted(deliveries: Sequence[Delivery], worker_id: str) -> list[Delivery]:
    """Return the claimed works that ``AYEWORK["ACCEPT"]`` takes; the others go back for a poll.

    A declined work spends no attempt. It is due a poll later, so this worker comes to the works behind it
    first. One that the hook fails on is declined, and the failure reported.
    """
    hook = get_settings().accept
    if hook is None:
        return list(deliveries)
    accept = resolved_hook(hook)
    declined = [delivery for delivery in deliveries if not is_accepted(delivery, accept)]
    if declined:
        again_at = later(clock.now(), get_settings().poll_interval)
        transitions.release(
            {delivery.row.id: delivery.row.delivery for delivery in declined}, worker_id, again_at
        )
    return [delivery for delivery in deliveries if delivery not in declined]


def is_accepted(delivery: Delivery, accept: Callable[..., object]) -> bool:
    """Ask the hook about one work."""
    try:
        with project_code():
            return bool(accept(state_of(delivery.row)))
    except BaseException as error:
        report(error, "queue", f"ACCEPT failed on work {delivery.row.id}, which goes back")
        return False


# --- parking ---
# Parking: a work of a type unknown here is offered again later, as another worker may know it.


def told_apart(claimed: Iterable[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
    """Return the works that can run here, and those that may be for others."""
    known: list[Delivery] = []
    unknown: list[Delivery] = []
    for delivery in claimed:
        (unknown if is_parked(delivery.row) else known).append(delivery)
    return known, unknown


def park(deliveries: Iterable[Delivery], worker_id: str) -> None:
    """Give claimed works back, to be offered again in a while."""
    for delivery in deliveries:
        park_row(delivery.row, worker_id)


def park_row(row: WorkRow, worker_id: str) -> None:
    """Give a claimed work back, to be offered again in a while."""
    now = clock.now()
    logger.warning(
        "Work %s has the type %r, which is unknown here. %s %s",
        row.id, row.type, if_renamed(row.type, registry.names()), registry.loaded(),
    )  # fmt: skip
    error = parked_again(row.error, now)
    transitions.release({row.id: row.delivery}, worker_id, now + OFFER_AGAIN, error)
