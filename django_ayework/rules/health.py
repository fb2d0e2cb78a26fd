"""The health of workers: progress, connections, restarts, slower claims under pressure, and a backlog."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from django_ayework.documentation import value_error
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.retry import is_number


class Phase(StrEnum):
    """Where a worker is in its life."""

    STARTING = "starting"  # until the database knows of it
    WORKING = "working"
    RETIRING = "retiring"  # it has done enough, and lets what runs come to its end
    STOPPING = "stopping"  # it was asked to
    RETIRED = "retired"
    FINISHED = "finished"  # a burst found nothing more to do
    DISMISSED = "dismissed"  # an operator has stopped it, and wants no other in its place
    STOPPED = "stopped"


#: While the claiming loop is to make progress.
ALIVE = frozenset({Phase.STARTING, Phase.WORKING, Phase.RETIRING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The signs of life of a worker; by default those of one that has sent none yet.

    ``silent`` has, for each thread it needs, for how many seconds that has made no progress although there
    was some to be made; ``dead`` names threads that have ended before their time. ``trouble`` is the
    error of the last claim, else that of the last heartbeat. ``memory`` is in bytes.
    """

    worker: str = ""
    pid: int = 0
    phase: Phase
    silent: Mapping[str, float] = field(default_factory=dict)
    trouble: str = ""
    dead: tuple[str, ...] = ()
    running: int = 0
    concurrency: int = 0
    attempts: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """``live``: it makes progress. ``ready``: it takes works. ``reasons`` say why one of them is not so."""

    live: bool
    ready: bool
    reasons: tuple[str, ...] = ()


def health_of(signs: Signs, stall: float) -> Health:
    """Judge one worker; a thread of it without progress for ``stall`` seconds is stuck.

    A database that is away makes a worker unready, not dead: starting it again would not bring it back.

    >>> health_of(Signs(phase=Phase.WORKING, silent={"claiming": 61.0}), stall=60.0).live
    False
    """
    wrong = wrong_with_threads(signs, stall)
    unready = [] if signs.phase is Phase.WORKING else [f"the worker is {signs.phase}"]
    if signs.trouble:
        unready.append(f"the database cannot be used: {signs.trouble}")
    return Health(live=not wrong, ready=not wrong and not unready, reasons=(*wrong, *unready))


def wrong_with_threads(signs: Signs, stall: float) -> list[str]:
    """Say which threads of a worker have ended before their time, or are stuck."""
    stuck = {name: silent for name, silent in signs.silent.items() if silent > stall}
    return [
        *(f"the thread {name!r} has ended" for name in signs.dead),
        *(f"the thread {name!r} has made no progress for {silent:.0f} s" for name, silent in stuck.items()),
    ]


def health_of_all(members: Sequence[tuple[str, Health]]) -> Health:
    """Judge workers together: live when all are, ready when all are; reasons begin with whose they are."""
    return Health(
        live=all(health.live for _, health in members),
        ready=bool(members) and all(health.ready for _, health in members),
        reasons=tuple(f"{name}: {reason}" for name, health in members for reason in health.reasons),
    )


#: The purposes of the engine's own threads in one process. Each has one connection, outside of any pool. At
#: rest the threads that claim and settle keep theirs.
OWN = ("claiming", "last attempts", "settling", "keeping leases", "maintenance")
#: The purpose of the thread that fires schedules, if a process has one.
SCHEDULING = "firing schedules"
#: The purpose of the thread that calls the hook, if the project has one.
UNHANDLED_GROUPS = "UNHANDLED_GROUP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most connections that processes of one command line have open to the queue's database.

    Handlers have one each while they run: plain ones in their thread, async ones in a thread of their own.
    Neither the event loop, nor the main thread, nor a supervisor has any. A process that is replaced keeps
    its connections until its works have ended, so ``replaced`` processes may exist twice for a while.
    ``wakeups`` has the purposes of connections for wake-ups.

    >>> budget = Budget(concurrency=8, processes=4, replaced=True)
    >>> budget.per_process, budget.usual, budget.most
    (14, 56, 112)
    """

    concurrency: int
    processes: int = 1
    replaced: bool = False
    scheduler: bool = True
    unhandled_groups: bool = False
    wakeups: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        """The purposes of the engine's own threads in each process."""
        scheduling = [SCHEDULING] if self.scheduler else []
        hooks = [UNHANDLED_GROUPS] if self.unhandled_groups else []
        return (*OWN, *scheduling, *hooks, *self.wakeups)

    @property
    def per_process(self) -> int:
        """How many one process has."""
        return self.concurrency + len(self.own)

    @property
    def usual(self) -> int:
        """How many all processes have, while none is being replaced."""
        return self.per_process * self.processes

    @property
    def most(self) -> int:
        """How many there may be for a moment."""
        return self.usual * 2 if self.replaced and self.processes > 1 else self.usual


#: A process that lived for less than this many seconds died quickly.
QUICK = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


def quick_deaths(before: int, lived: float) -> int:
    """Return how many quick deaths in a row there are now.

    >>> quick_deaths(2, lived=0.5), quick_deaths(2, lived=3600)
    (3, 0)
    """
    return before + 1 if lived < QUICK else 0


def restart_pause(quick_deaths: int) -> float:
    """Return how many seconds to wait: none the first time, then twice as long each time, up to a bound.

    >>> [restart_pause(deaths) for deaths in (0, 1, 2, 3, 4, 20)]
    [0.0, 0.0, 1.0, 2.0, 4.0, 30.0]
    """
    if quick_deaths < 2:
        return 0.0
    return min(FIRST_PAUSE * 2.0 ** min(quick_deaths - 2, 10), LONGEST_PAUSE)


#: Decimal places of a delay: without rounding, steps up and down would not meet again.
PLACES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureInfo:
    """The argument of a backpressure hook: works running in this process, and attempts so far by type."""

    active: int
    succeeded: Mapping[str, int]
    failed: Mapping[str, int]


def adaptive_delay(
    base: Seconds = 0.1,
    factor: float = 2,
    step: Seconds | None = None,
    max: Seconds = 30,
    min: Seconds = 0,
    max_fail_rate: float = 0,
    types: Iterable[str] | None = None,
) -> Callable[[PressureInfo], float]:
    """Return a backpressure hook, which returns how many seconds to wait before the next claim.

    Each call looks at the attempts since the call before. If the share that failed is above
    ``max_fail_rate`` (0 to 1), the delay grows by ``factor``, from ``base`` up to ``max``. Otherwise it
    shrinks by ``step`` (by default ``base``) down to ``min``, with which it begins. ``types`` are the names
    of the types that count (by default all). Durations are seconds or timedelta.

    Raises TypeError or ValueError for values that cannot be used.

    >>> delay = adaptive_delay(types=["shop.charge"])
    >>> delay(PressureInfo(active=3, succeeded={"shop.charge": 4}, failed={"shop.charge": 1}))
    0.1
    >>> delay(PressureInfo(active=3, succeeded={"shop.charge": 9}, failed={"shop.charge": 1}))
    0.0
    """
    if not (is_number(factor) and 1 <= factor < math.inf):
        raise value_error(
            "adaptive-delay-arguments", f"expected factor to be a number, 1 or more, got: {factor!r}."
        )
    if not (is_number(max_fail_rate) and 0 <= max_fail_rate <= 1):
        raise value_error(
            "adaptive-delay-arguments",
            f"expected max_fail_rate to be between 0 and 1, got: {max_fail_rate!r}.",
        )
    first, least, most = seconds(base, "base"), seconds(min, "min"), seconds(max, "max")
    down = first if step is None else seconds(step, "step")
    if least > most:
        raise value_error(
            "adaptive-delay-arguments", f"expected min to be at most max, got: min={min!r}, max={max!r}."
        )
    watched = None if types is None else {types} if isinstance(types, str) else set(types)
    delay = least
    before: dict[str, int] = {"succeeded": 0, "failed": 0}

    def since_last_call(name: str, counts: Mapping[str, int]) -> int:
        total = sum(count for type, count in counts.items() if watched is None or type in watched)
        last, before[name] = before[name], total
        return total - last if total >= last else total  # a smaller count has begun anew

    def hook(info: PressureInfo) -> float:
        nonlocal delay
        succeeded = since_last_call("succeeded", info.succeeded)
        failed = since_last_call("failed", info.failed)
        if failed and failed / (succeeded + failed) > max_fail_rate:
            delay = builtins.min(most, builtins.max(first, delay * factor if delay else first))
        else:
            delay = builtins.max(least, delay - down)
        delay = round(delay, PLACES)
        return delay

    return hook


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogInfo:
    """The argument of ``ON_BACKLOG``: how much runs and waits, and for how many seconds some has waited.

    ``queued`` is None where the number is not known.
    """

    active: int
    queued: int | None
    behind_for: float


class Episode:
    """A time in which something waits without a break, from ``since`` on.

    It is reported once it has lasted for ``after`` seconds, and again ``every`` so many seconds, or once.
    Moments are seconds on any clock that does not step back.

    >>> episode = Episode(since=100.0, after=10, every=None)
    >>> episode.reported(105.0), episode.reported(110.0), episode.reported(500.0)
    (None, 10.0, None)
    """

    def __init__(self, since: float, after: float, every: float | None) -> None:
        self.since = since
        self.every = every
        #: The moment of the next report; None for no more.
        self.due_at: float | None = since + after

    def reported(self, now: float) -> float | None:
        """Return how long it has lasted if a report is due now, and set the moment of the next one."""
        if self.due_at is None or now < self.due_at:
            return None
        self.due_at = None if self.every is None else now + self.every
        return now - self.since
