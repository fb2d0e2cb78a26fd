"""The time a fan-out takes beside an idle worker, from its enqueue to the end of the report that joins it."""

from __future__ import annotations

from bench.curves import Case, databases, own_crews, report
from bench.peers.contestant import Setting
from bench.peers.phases import idle_worker
from bench.report.files import scaled
from bench.report.readings import Reading

CHILDREN = 1000
ROUNDS = 5
FIGURES = ("s to the report's end", "s until the caller knows")


def main() -> None:
    """Print the seconds and keep them."""
    for database in databases():
        report("fanout", measure(database), database)


def measure(database: str) -> list[Reading]:
    """Fan out some times, one after the other, by one worker; the first time is not counted."""
    case = Case(f"{CHILDREN} children")
    with own_crews(database, [case]) as crews, idle_worker(crews[case], Setting()):
        rounds = [crews[case].ask("fan_out", scaled(CHILDREN, 100)) for _ in range(1 + ROUNDS)][1:]
    return [
        Reading("fan-out", "ours", database, case.title, figure, tuple(one[place] for one in rounds))
        for place, figure in enumerate(FIGURES)
    ]


if __name__ == "__main__":
    main()
