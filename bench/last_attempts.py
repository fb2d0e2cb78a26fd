"""What a last attempt costs: no-op works that have one attempt, beside works that have three."""

from __future__ import annotations

from statistics import median

from bench.harness import drain, scratch_database

WORKS = 5000
ROUNDS = 5


def main() -> None:
    """Print works per second with each number of attempts, in turns, and their ratio."""
    with scratch_database() as vendor:
        rates: dict[int, list[float]] = {3: [], 1: []}
        for _ in range(ROUNDS):
            for attempts, measured in rates.items():
                measured.append(rate(attempts))
    several, one = (median(measured) for measured in rates.values())
    print(f"{vendor}: {WORKS} no-op works, {ROUNDS} rounds, medians")
    print(f"  three attempts {several:,.0f} works/s, one attempt {one:,.0f} works/s: {one / several:.2f}")


def rate(attempts: int) -> float:
    """Return how many works with so many attempts a worker ends in a second."""
    from bench.works import noop
    from django_ayework import Retry, enqueue_many
    from django_ayework.models import Work

    enqueue_many([noop(number=number) for number in range(WORKS)], retry=Retry(attempts=attempts))
    seconds = drain()
    Work.objects.all().delete()
    return WORKS / seconds


if __name__ == "__main__":
    main()
