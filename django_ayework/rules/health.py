"""Health: whether a worker makes progress, and whether it takes works."""

from __future__ import annotations

from collections.abc import Sequence
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

    ``silent`` is for how many seconds its claiming loop has made no progress, ``trouble`` what the database
    answered it last, ``dead`` names threads that have ended before their time; ``memory`` is in bytes.
    """

    worker: str
    pid: int
    phase: Phase
    silent: float
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
    """Judge one worker; a claiming loop without progress for ``stall`` seconds is stuck.

    A database that is away makes a worker unready, not dead: starting it again would not bring it back.

    >>> health_of(signs_of_nobody(Phase.WORKING, silent=61.0), stall=60.0).live
    False
    """
    stuck = signs.phase in ALIVE and signs.silent > stall
    wrong = [f"{thread} has ended" for thread in signs.dead]
    if stuck:
        wrong.append(f"the claiming loop has made no progress for {signs.silent:.0f} s")
    unready = [] if signs.phase is Phase.WORKING else [f"the worker is {signs.phase}"]
    if signs.trouble:
        unready.append(f"the database cannot be used: {signs.trouble}")
    return Health(live=not wrong, ready=not wrong and not unready, reasons=(*wrong, *unready))


def health_of_all(members: Sequence[tuple[str, Health]]) -> Health:
    """Judge workers together: live when all are, ready when all are; reasons begin with whose they are."""
    return Health(
        live=all(health.live for _, health in members),
        ready=bool(members) and all(health.ready for _, health in members),
        reasons=tuple(f"{name}: {reason}" for name, health in members for reason in health.reasons),
    )


def signs_of_nobody(phase: Phase, silent: float = 0.0) -> Signs:
    """Return the signs of a worker that has not been heard of yet."""
    return Signs(
        worker="", pid=0, phase=phase, silent=silent, trouble="", dead=(),
        running=0, concurrency=0, attempts=0, memory=0,
    )  # fmt: skip
