"""When a worker claims less or nothing: retirement, backpressure, acceptance, unknown types; and backlogs."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django_ayework.conf import get_settings
from django_ayework.define.options import whole_number
from django_ayework.define.types import registry
from django_ayework.documentation import logged
from django_ayework.errors import InvalidOption
from django_ayework.flow.hooks import answer_of, backlog_policy, report, resolved_hook
from django_ayework.flow.settle import Success
from django_ayework.flow.states import state_of
from django_ayework.logs import logger
from django_ayework.rules.controls import several
from django_ayework.rules.durations import later
from django_ayework.rules.formatting import if_renamed, is_parked, parked_again
from django_ayework.rules.health import BacklogInfo, Episode, PressureInfo
from django_ayework.rules.retry import OFFER_AGAIN
from django_ayework.rules.states import Outcome
from django_ayework.store import transitions
from django_ayework.store.connections import project_code
from django_ayework.store.database import clock
from django_ayework.store.lanes import pending_by_queue
from django_ayework.store.rows import WorkRow
from django_ayework.worker.attempt import Ended
from django_ayework.worker.in_flight import Delivery
from django_ayework.worker.threads import Failures

MEGABYTE = 2**20
#: Seconds between two measurements of the memory.
MEASURE_EVERY = 1.0


def asked_slots(given: int | None) -> int:
    """Return how many works a worker is to run at a time. Raises InvalidOption."""
    return get_settings().concurrency if given is None else whole_number(1)(given, "concurrency")


def named(given: Iterable[str], option: str) -> tuple[str, ...]:
    """Return the names of an option, given as several or as one. Raises InvalidOption."""
    names = several(given)
    if wrong := next((name for name in names if not isinstance(name, str)), None):
        raise InvalidOption(f"expected {option} to be names, as texts, got: {wrong!r}.")
    return names


@dataclass(eq=False)
class Retirement:
    """When a worker retires: after ``max_works`` attempts, or above ``max_memory`` megabytes.

    Raises InvalidOption for limits that are no whole numbers, 1 or more.
    """

    max_works: int | None
    max_memory: int | None
    #: The limit that was reached, in words; empty until then.
    reached: str = ""
    _measured_at: float = float("-inf")

    def __post_init__(self) -> None:
        for option in ("max_works", "max_memory"):
            if (limit := getattr(self, option)) is not None:
                whole_number(1)(limit, option)

    def attempts_left(self, attempts: int) -> int:
        """Return how many more attempts may be made after so many."""
        if self.reached:
            return 0
        return sys.maxsize if self.max_works is None else max(0, self.max_works - attempts)

    def judge(self, attempts: int, all_begun: Callable[[], bool]) -> bool:
        """Tell whether a limit is reached. Attempts count once begun: until then works may be given back."""
        if self.reached:
            return True
        if self.max_works is not None and attempts >= self.max_works and all_begun():
            self.reached = f"{attempts} attempts were made, of {self.max_works}"
        elif self.max_memory is not None and time.monotonic() - self._measured_at >= MEASURE_EVERY:
            self._measured_at = time.monotonic()
            megabytes = resident_bytes() / MEGABYTE
            if megabytes > self.max_memory:
                self.reached = f"{megabytes:.0f} MB are in use, more than {self.max_memory}"
        if self.reached:
            logger.info("The worker claims no more: %s.", self.reached)
        return bool(self.reached)


STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return how much memory the process holds now; the most it ever held where that is unknown.

    Linux has the figure in ``/proc``. macOS and others have the peak alone: there one spike counts for ever.
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


@dataclass(eq=False)
class Backpressure:
    """Counts how attempts of one worker end, and asks the hook ``BACKPRESSURE`` whether to claim."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _succeeded: Counter[str] = field(default_factory=Counter)
    _failed: Counter[str] = field(default_factory=Counter)
    _until: float = float("-inf")
    _failures: Failures = field(default_factory=Failures)

    def count(self, outcomes: Iterable[Ended]) -> None:
        """Count attempts by type and end, if there is a hook; a deferral is neither."""
        if get_settings().backpressure is None:
            return
        with self._lock:
            for _, settlement in outcomes:
                if settlement is None:
                    continue
                if isinstance(settlement.ending, Success):
                    self._succeeded[settlement.row.type] += 1
                elif settlement.ending.outcome is not Outcome.DEFERRED:
                    self._failed[settlement.row.type] += 1

    def pause(self, active: int) -> float:
        """Return for how many seconds nothing is to be claimed; 0 for go on.

        The hook is asked once before each claim, not again while its answer holds. One that raises is
        reported, and holds back for a poll.
        """
        hook = get_settings().backpressure
        left = self._until - time.monotonic()
        if hook is None or left > 0:
            return max(0.0, left)
        with self._lock:
            info = PressureInfo(active=active, succeeded=dict(self._succeeded), failed=dict(self._failed))
        try:
            with project_code():
                pause = float(answer_of(hook, info) or 0)
        except BaseException as error:
            self._failures.report(error, "BACKPRESSURE failed; nothing is claimed for a poll")
            pause = get_settings().poll_interval
        else:
            self._failures.succeed()
        self._until = time.monotonic() + pause
        return max(0.0, pause)


class BacklogMonitor:
    """Calls ``ON_BACKLOG`` once a worker has been behind for too long.

    A worker is behind while works could fill more room than it has.
    """

    _episode: Episode | None = None

    def note(self, behind: bool, active: int, serves: Callable[[str], bool]) -> None:
        """Note one turn of the claiming loop. A turn with room for everything it found ends the episode."""
        policy = backlog_policy() if behind else None
        if policy is None:
            self._episode = None
            return
        now = time.monotonic()
        self._episode = self._episode or Episode(now, policy.after, policy.every)
        behind_for = self._episode.reported(now)
        if behind_for is None:
            return
        waiting = queued(serves)
        if waiting == 0:  # the slots are full, and that is all there is to do
            self._episode = None
            return
        policy.hook(BacklogInfo(active=active, queued=waiting, behind_for=behind_for))


def queued(serves: Callable[[str], bool]) -> int | None:
    """Count the works that are due in the queues served; None when the database cannot say."""
    try:
        return sum(works for queue, works in pending_by_queue().items() if serves(queue))
    except Exception as error:
        report(error, "queue", "the works that are due could not be counted")
        return None


def accepted(deliveries: Sequence[Delivery], worker_id: str, failures: Failures) -> list[Delivery]:
    """Return the claimed works that ``AYEWORK["ACCEPT"]`` takes; the others go back for a poll.

    A declined work spends no attempt. It is due a poll later, so this worker comes to the works behind it
    first. One that the hook fails on is declined, and the failure reported.
    """
    hook = get_settings().accept
    if hook is None:
        return list(deliveries)
    accept = resolved_hook(hook)
    taken, declined, has_failed = [], {}, False
    for delivery in deliveries:
        try:
            with project_code():
                is_accepted = bool(accept(state_of(delivery.row)))
        except BaseException as error:
            failures.report(error, f"ACCEPT failed on work {delivery.row.id}, which is released")
            is_accepted, has_failed = False, True
        if is_accepted:
            taken.append(delivery)
        else:
            declined[delivery.row.id] = delivery.row.delivery
    if deliveries and not has_failed:
        failures.succeed()
    if declined:
        again_at = later(clock.now(), get_settings().poll_interval)
        transitions.release(declined, worker_id, again_at)
    return taken


def park(row: WorkRow, worker_id: str) -> None:
    """Give back a work of a type that is unknown here; it is offered again later, to others too.

    A warning is logged the first time.
    """
    now = clock.now()
    if not is_parked(row.error):
        logger.warning(
            "Work %s has the type %r, which is unknown here. %s %s %s",
            row.id, row.type, if_renamed(row.type, registry.names()), registry.loaded(),
            logged("unknown-type"),
        )  # fmt: skip
    transitions.release({row.id: row.delivery}, worker_id, now + OFFER_AGAIN, parked_again(row.error, now))
