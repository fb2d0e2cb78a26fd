"""The drain rate beside many waiting, finished and far-future works, against that of an empty table.

Each case has a database of its own, which is filled once; the rounds alternate, so that noise hits all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.curves import Case, databases, own_crews, report
from bench.peers.crew import Crew
from bench.peers.phases import LONGEST_DRAIN, RATE
from bench.peers.scratch import settle
from bench.report.files import scaled
from bench.report.readings import Reading
from bench.report.targets import EMPTY

#: Twice as many as elsewhere: those take MariaDB less than the second after which it purges what moved, so
#: that the purge would be within the phase or behind it, by chance.
JOBS = 20_000
#: Queued beyond those that are timed, so that the worker does not run dry at the end.
SPARE = 2_000
#: The first round is not counted: what was filled is still being written out. A shared machine may swing by a
#: third from one to the next, so there are more than elsewhere.
ROUNDS = 1 + 24


@dataclass(frozen=True)
class Retained(Case):
    """A kind of rows, and how many of them."""

    kind: str = ""
    count: int = 0


CASES = (
    Retained(EMPTY),
    Retained("beside 300 000 waiting", "waiting", 300_000),
    Retained("beside 1 M finished", "finished", 1_000_000),
    Retained("beside 1 M far-future", "future", 1_000_000),
)


def main() -> None:
    """Print the rates and keep them."""
    for database in databases():
        report("retained", measure(database), database)


def measure(database: str) -> list[Reading]:
    """Fill the databases, and drain some works of each in turns."""
    jobs = scaled(JOBS, 500)
    rates: dict[Case, list[float]] = {case: [] for case in CASES}
    with own_crews(database, CASES) as crews:
        for case in CASES:
            if case.kind:
                crews[case].ask("retain", case.kind, scaled(case.count))
        for number in range(ROUNDS):
            for case in CASES if number % 2 == 0 else reversed(CASES):
                rates[case].append(drain_some(crews[case], jobs))
    return [
        Reading("retained", "ours", database, case.title, RATE, tuple(figures[1:]))
        for case, figures in rates.items()
    ]


def drain_some(crew: Crew, jobs: int) -> float:
    """Queue some more than so many jobs; return the rate at which so many are done, whichever they are."""
    crew.ask("refill", jobs + SPARE)
    settle(crew.url)
    crew.trace.reset()
    with crew.workers("", 1):
        opened = crew.trace.open_gate(1)
        while crew.trace.count() < jobs and time.monotonic() < opened + LONGEST_DRAIN:
            time.sleep(0.002)
        return crew.trace.count() / (time.monotonic() - opened)


if __name__ == "__main__":
    main()
