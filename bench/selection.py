"""Which measurements the command line asks for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.phases import PHASES

#: Run once on every database that answers, in a process of its own each time.
ON_EACH_DATABASE = (
    "statements",
    "sleepers",
    "spinners",
    "flood",
    "killed",
    "stopped",
    "limited",
    "last_attempts",
    "fairness",
    "memory",
    "footprint",
    "schedules",
    "fleet",
    "churn",
    "events",
    "tracing",
    "admin",
)
#: These take their databases themselves, in turns.
ON_ALL_DATABASES = ("retained", "fanout", "groups", "queue_port")
#: Names for several phases of the comparison.
SEVERAL_PHASES = {"enqueue": ("enqueue-one", "enqueue-many")}
PEERS = "peers"


@dataclass(frozen=True)
class Selection:
    """Modules to run, and the phases of the comparison, with the peers or without."""

    on_each: tuple[str, ...]
    on_all: tuple[str, ...]
    phases: tuple[str, ...]
    with_peers: bool

    def commands(self) -> list[list[str]]:
        """Return the commands that take their databases themselves: the comparison first."""
        options = [*self.phases] if self.with_peers else ["--own", *self.phases]
        compared = [[sys.executable, "-m", "bench.peers", *options]] if self.phases else []
        return compared + [[sys.executable, "-m", f"bench.{name}"] for name in self.on_all]


def select(names: Sequence[str]) -> Selection:
    """Return what is named, or everything.

    ``peers`` alone is the whole comparison; beside the names of phases it adds the peers to these.
    Raises SystemExit that tells the names when one means nothing.
    """
    every_phase = tuple(phase.name for phase in PHASES)
    if unknown := set(names) - {*ON_EACH_DATABASE, *ON_ALL_DATABASES, *SEVERAL_PHASES, *every_phase, PEERS}:
        known = ", ".join((PEERS, *every_phase, *SEVERAL_PHASES, *ON_ALL_DATABASES, *ON_EACH_DATABASE))
        raise SystemExit(f"expected figures among {known}; got: {', '.join(sorted(unknown))}")
    if not names:
        return Selection(ON_EACH_DATABASE, ON_ALL_DATABASES, every_phase, with_peers=True)
    asked = {phase for name in names for phase in SEVERAL_PHASES.get(name, (name,))}
    phases = tuple(name for name in every_phase if name in asked)
    return Selection(
        on_each=tuple(name for name in ON_EACH_DATABASE if name in asked),
        on_all=tuple(name for name in ON_ALL_DATABASES if name in asked),
        phases=phases or (every_phase if PEERS in names else ()),
        with_peers=PEERS in names,
    )
