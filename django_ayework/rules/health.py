"""Whether a worker makes progress, how many connections it needs, and when a process is started again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# --- health ---
# Health: whether a worker makes progress, and whether it takes works.


class Phase(StrEnum):
    """Where a worker is in its life."""

    STARTING = "starting"  # until the database knows of it
    WORKING = "working"
    RETIRING = "retiring"  # it has done enough, and lets what runs come to its end
    STOPPING = "stopping"  # it was told to
    RETIRED = "retired"
    FINISHED = "finished"  # a burst found nothing more to do
    STOPPED = "stopped"


#: While the claiming loop is to make progress.
ALIVE = frozenset({Phase.STARTING, Phase.WORKING, Phase.RETIRING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What a worker shows of itself.

    ``silent`` has, for each thread it needs, for how many seconds that has made no progress although there
    was some to be made; ``dead`` names threads that have ended before their time. ``trouble`` is what the
    database answered last when it was asked for works. ``memory`` is in bytes.
    """

    worker: str
    pid: int
    phase: Phase
    silent: Mapping[str, float]
    trouble: str
    dead: tuple[str, ...]
    running: int
    concurrency: int
    attempts: int
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """``live``: it makes progress. ``ready``: it takes works. ``reasons`` say why one of them is not so."""

    live: bool
    ready: bool
    reasons: tuple[str, ...] = ()


def health_of(signs: Signs, stall: float) -> Health:
    """Judge one worker; a thread of it without progress for ``stall`` seconds is stuck.

    A database that is away makes a worker unready, not dead: starting it again would not bring it back.

    >>> health_of(signs_of_nobody(Phase.WORKING, silent={"claiming": 61.0}), stall=60.0).live
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


def signs_of_nobody(phase: Phase, silent: Mapping[str, float] | None = None) -> Signs:
    """Return the signs of a worker that has not been heard of yet."""
    return Signs(
        worker="", pid=0, phase=phase, silent=silent or {}, trouble="", dead=(),
        running=0, concurrency=0, attempts=0, memory=0,
    )  # fmt: skip


# --- budget ---
# How many database connections workers use.

#: What the engine's own threads in one process are for; each has one connection, outside of any pool. At rest
#: those that claim and settle keep theirs.
OWN = ("claiming", "settling", "keeping leases", "maintenance")
#: And that of the thread that fires schedules, if there is one.
SCHEDULING = "firing schedules"
#: And that of the thread that calls the hook, if the project has one.
UNHANDLED_GROUPS = "UNHANDLED_GROUP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most connections that processes of one command line have open to the queue's database.

    Handlers have one each while they run: plain ones in their thread, async ones in a thread of their own.
    Neither the event loop, nor the main thread, nor a supervisor has any. A process that is replaced keeps
    its connections until what it runs has ended, so ``replaced`` processes may be there twice for a while.
    ``wakeups`` are what those take connections for.

    >>> budget = Budget(concurrency=8, processes=4, replaced=True)
    >>> budget.per_process, budget.usual, budget.most
    (13, 52, 104)
    """

    concurrency: int
    processes: int = 1
    replaced: bool = False
    scheduler: bool = True
    unhandled_groups: bool = False
    wakeups: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        """What the engine's own threads in each process are for."""
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


# --- restarts ---
# When a process that died is started again.

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
