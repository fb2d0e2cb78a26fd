"""The drain rate beside many finished and far-future works, against that of an empty table."""

from __future__ import annotations

import statistics

from bench.harness import drain, empty, fill, refresh_statistics, retain, scratch_database

JOBS = 5000
RETAINED = 200_000
ROUNDS = 3


def main() -> None:
    """Print both rates and their ratio; the rounds alternate so that a noisy moment hits both."""
    rates: dict[str, list[float]] = {"empty table": [], "with retained rows": []}
    with scratch_database() as vendor:
        for _ in range(ROUNDS):
            for name, figures in rates.items():
                empty()
                if name != "empty table":
                    retain(RETAINED)
                fill(JOBS)
                refresh_statistics()
                figures.append(JOBS / drain())
    print(f"{vendor}: draining {JOBS} no-op jobs, one worker, default settings, medians of {ROUNDS}")
    medians = {name: statistics.median(figures) for name, figures in rates.items()}
    for name, median in medians.items():
        print(f"  {name:<20} {median:8.0f} jobs/s   {', '.join(f'{figure:.0f}' for figure in rates[name])}")
    print(f"  ratio                {medians['with retained rows'] / medians['empty table']:8.2f}")
    print(f"  ({RETAINED} finished and {RETAINED} far-future rows)")


if __name__ == "__main__":
    main()
