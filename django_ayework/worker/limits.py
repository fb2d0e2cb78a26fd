"""When a worker claims less or nothing: limits, backpressure, acceptance, unknown types; and backlogs."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync

from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.flow.events import backlog_policy, report, resolved_hook
from django_ayework.flow.settle import Settlement, Success
from django_ayework.flow.states import state_of
from django_ayework.heartbeat import project_code
from django_ayework.rules.backpressure import BacklogInfo, Episode, PressureInfo
from django_ayework.rules.decisions import OFFER_AGAIN, if_renamed, parked_again
from django_ayework.rules.durations import later
from django_ayework.rules.states import Outcome
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.lanes import depths_of
from django_ayework.worker.delivery import Delivery

logger = logging.getLogger("django_ayework")

# --- a worker's own limits --------------------------------------------------------------------------------

MEGABYTE = 2**20
#: Seconds between two measurements of the memory.
MEASURE_EVERY = 1.0


class Limits:
    """``max_works`` attempts, or more than ``max_memory`` megabytes: then no work is claimed any more."""

    def __init__(self, max_works: int | None, max_memory: int | None) -> None:
        self.max_works = max_works
        self.max_memory = max_memory
        #: The limit that was reached, in words; empty until then.
        self.reached = ""
        self._measured_at = float("-inf")

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
        if self.max_memory is None or now - self._measured_at < MEASURE_EVERY:
            return ""
        self._measured_at = now
        megabytes = resident_bytes() / MEGABYTE
        if megabytes <= self.max_memory:
            return ""
        return f"{megabytes:.0f} MB are in use, more than {self.max_memory}"


STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return how much memory the process holds now; where the system does not tell, the most it ever held.

    Linux tells in ``/proc``. macOS and others tell the peak alone, so there one spike counts for ever.
    """
    try:
        import resource
    except ImportError:  # neither Linux nor macOS
        return 0
    try:
        return int(STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


# --- backpressure -----------------------------------------------------------------------------------------


class Backpressure:
    """Counts how attempts of one worker end, and asks the hook ``BACKPRESSURE`` whether to claim."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._succeeded: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._until = float("-inf")

    def count(self, settlement: Settlement) -> None:
        """Count an attempt by its type and end, if there is a hook; a deferral is neither of both."""
        if get_settings().backpressure is None:
            return
        ending = settlement.ending
        if isinstance(ending, Success):
            counts = self._succeeded
        elif ending.outcome is Outcome.DEFERRED:
            return
        else:
            counts = self._failed
        with self._lock:
            counts[settlement.row.type] += 1

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
            pause = float(self._ask(resolved_hook(hook), active) or 0)
        except BaseException as error:
            report(error, "queue", "BACKPRESSURE failed; nothing is claimed for a poll")
            pause = get_settings().poll_interval
        self._until = self._seconds() + pause
        return max(0.0, pause)

    def _ask(self, hook: Callable[..., Any], active: int) -> Any:
        """Call the hook, which may be async."""
        with self._lock:
            info = PressureInfo(active=active, succeeded=dict(self._succeeded), failed=dict(self._failed))
        ask = async_to_sync(hook) if inspect.iscoroutinefunction(hook) else hook
        with project_code():
            return ask(info)


class BacklogMonitor:
    """Calls ``ON_BACKLOG`` once a worker has been behind for too long.

    A worker is behind while works could fill more room than it has.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._episode: Episode | None = None

    def note(self, behind: bool, active: int, serves: Callable[[str], bool]) -> None:
        """Note one turn of the claiming loop. A turn with room for everything it found ends the episode."""
        policy = backlog_policy() if behind else None
        if policy is None:
            self._episode = None
            return
        now = self._seconds()
        self._episode = self._episode or Episode(now, policy.after, policy.every)
        behind_for = self._episode.told(now)
        if behind_for is None:
            return
        waiting = queued(serves)
        if waiting == 0:  # the slots are full, and that is all there is to do
            self._episode = None
            return
        policy.tell(BacklogInfo(active=active, queued=waiting, behind_for=behind_for))


def queued(serves: Callable[[str], bool]) -> int | None:
    """Count the works that are due in the queues served; None when the database cannot say."""
    try:
        return sum(depth.works for depth in depths_of("pending") if serves(depth.queue))
    except Exception as error:
        report(error, "queue", "the works that are due could not be counted")
        return None


# --- claimed works that go back ---------------------------------------------------------------------------


def accepted(deliveries: Sequence[Delivery], worker_id: str) -> list[Delivery]:
    """Return the claimed works that ``AYEWORK["ACCEPT"]`` takes; the others go back for a poll.

    A declined work spends no attempt. It is due a poll later, so this worker comes to the works behind it
    first. One that the hook fails on is declined, and the failure reported.
    """
    hook = get_settings().accept
    if hook is None:
        return list(deliveries)
    accept = resolved_hook(hook)
    taken, declined = [], {}
    for delivery in deliveries:
        if is_accepted(delivery, accept):
            taken.append(delivery)
        else:
            declined[delivery.row.id] = delivery.row.delivery
    if declined:
        again_at = later(clock.now(), get_settings().poll_interval)
        transitions.release(declined, worker_id, again_at)
    return taken


def is_accepted(delivery: Delivery, accept: Callable[..., object]) -> bool:
    """Ask the hook about one work."""
    try:
        with project_code():
            return bool(accept(state_of(delivery.row)))
    except BaseException as error:
        report(error, "queue", f"ACCEPT failed on work {delivery.row.id}, which goes back")
        return False


def park(deliveries: Iterable[Delivery], worker_id: str) -> None:
    """Give back works of types that are unknown here; they are offered again later, to others too."""
    for row in (delivery.row for delivery in deliveries):
        now = clock.now()
        logger.warning(
            "Work %s has the type %r, which is unknown here. %s %s",
            row.id, row.type, if_renamed(row.type, registry.names()), registry.loaded(),
        )  # fmt: skip
        error = parked_again(row.error, now)
        transitions.release({row.id: row.delivery}, worker_id, now + OFFER_AGAIN, error)
