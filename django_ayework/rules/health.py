"""Health: whether a worker makes progress, and whether it takes works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


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
