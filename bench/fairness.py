"""A single work of one label behind a flood of another, beside many more labels; and what labels cost."""

from __future__ import annotations

import time
from dataclasses import replace

from bench.harness import drain, process_env, scratch_database
from bench.rows import refresh_statistics

FLOOD, LABELS = 10_000, 1_000
ENQUEUED = 500


def main() -> None:
    """Print when the single work ran, and how quick works with labels are beside those without."""
    with scratch_database() as vendor:
        position, behind = measure(process_env())
        rates = {
            f"with {LABELS} labels": labelled(LABELS),
            "with one label": labelled(1),
            "without a label": labelled(0),
        }
    print(f"{vendor}: a single work behind {FLOOD} works of one label, beside {LABELS} labels of a work each")
    print(f"  two worker processes ran it as number {position} of {behind}")
    for what, (bulk, single, drained) in rates.items():
        print(
            f"  {FLOOD} works {what}: enqueued in bulk {bulk:.0f}/s, one more {single:.2f} ms, "
            f"drained {drained:.0f}/s"
        )


def measure(env: dict[str, str]) -> tuple[int, int]:
    """Return as which work of how many the single one was started."""
    from bench.works import noop
    from django_ayework import enqueue, enqueue_many
    from django_ayework.models import Work
    from tests.processes import ended, worker_process

    enqueue_many([noop(number=number) for number in range(FLOOD)], fairness="flood")
    for label in range(LABELS):
        enqueue(noop(number=label), fairness=f"label {label}")
    single = enqueue(noop(number=0), fairness="single")
    refresh_statistics()
    options = ("--burst", "--concurrency", "8", "--verbosity", "0")
    with worker_process(env, *options) as one, worker_process(env, *options) as another:
        for process in (one, another):
            status, output = ended(process)
            if status:
                raise SystemExit(output)
    # Works of one claim are started in their order.
    started = Work.objects.order_by("started_at", "sort_key", "run_at", "id").values_list("id", flat=True)
    return [*started].index(single.id) + 1, len(started)


def labelled(labels: int) -> tuple[float, float, float]:
    """Return works a second queued in bulk, milliseconds of one more, and works a second of a drain."""
    from django.db import transaction

    from bench.works import noop
    from django_ayework import enqueue, enqueue_many
    from django_ayework.models import Work

    Work.objects.all().delete()
    refresh_statistics()
    began = time.monotonic()
    requests = [noop(number=number) for number in range(FLOOD)]
    if labels > 1:
        requests = [
            replace(request, options={"fairness": f"label {number % labels}"})
            for number, request in enumerate(requests)
        ]
    enqueue_many(requests, fairness="label 0" if labels == 1 else None)
    queued = time.monotonic()
    with transaction.atomic():  # which leaves out what commits take
        for number in range(ENQUEUED):
            enqueue(noop(number=number), fairness=f"label {number % labels}" if labels else None)
    alone = time.monotonic()
    return FLOOD / (queued - began), (alone - queued) / ENQUEUED * 1000, (FLOOD + ENQUEUED) / drain()


if __name__ == "__main__":
    main()
