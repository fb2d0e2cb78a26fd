"""What a member of a group costs, with the gate and the report that join it, against as many plain works."""

from __future__ import annotations

from dataclasses import dataclass

from bench.curves import Case, databases, own_crews, report
from bench.peers.contestant import Setting
from bench.peers.crew import Crew
from bench.peers.phases import idle_worker
from bench.report.files import scaled
from bench.report.readings import Reading
from bench.report.targets import PER_WORK

ROUNDS = 3


@dataclass(frozen=True)
class Works(Case):
    """So many works, in one group or each for itself."""

    count: int
    in_group: bool


def title(count: int, in_group: bool) -> str:
    """Return what the table calls so many works."""
    number = f"{count:,}".replace(",", " ")
    return f"group of {number}" if in_group else f"{number} plain"


CASES = tuple(
    Works(title(count, in_group), count, in_group)
    for count in (1000, 10_000, 50_000)
    for in_group in (True, False)
)


def main() -> None:
    """Print what a work costs and keep it."""
    for database in databases():
        report("groups", measure(database), database)


def measure(database: str) -> list[Reading]:
    """Run all cases in turns, each on an empty table beside an idle worker."""
    rounds: dict[Works, list[float]] = {case: [] for case in CASES}
    one = Case("all")
    with own_crews(database, [one]) as crews:
        for _ in range(ROUNDS):
            for case in CASES:
                with idle_worker(crews[one], Setting()):
                    rounds[case].append(microseconds(crews[one], case))
    return [
        Reading("groups", "ours", database, case.title, PER_WORK, tuple(figures))
        for case, figures in rounds.items()
    ]


def microseconds(crew: Crew, case: Works) -> float:
    """Return the microseconds per work, from the enqueue to the end of the last."""
    count = scaled(case.count, 100)
    seconds = crew.ask("fan_out", count)[0] if case.in_group else crew.ask("plain", count)
    return 1e6 * float(seconds) / count


if __name__ == "__main__":
    main()
