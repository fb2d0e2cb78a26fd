"""Statements per job, and of an idle worker."""

from __future__ import annotations

import time

from bench.harness import StatementCounter, drain, scratch_database

JOBS = 5000
IDLE_SECONDS = 20


def main() -> None:
    """Print the counts."""
    with scratch_database() as vendor:
        from bench.works import noop
        from django_ayework import enqueue

        print(f"{vendor}: {JOBS} jobs, one worker, default settings")
        with StatementCounter() as counter:
            for number in range(JOBS):
                enqueue(noop(number=number))
        print(f"  enqueue         {counter.total / JOBS:.4f} statements per job   {counter.counts}")
        with StatementCounter() as counter:
            seconds = drain()
        looks = round(
            seconds / 0.02
        )  # the harness's own looks, one each 20 ms, are counted too: an upper bound
        print(
            f"  claim + settle  {counter.total / JOBS:.4f} statements per job   {counter.counts}"
            f"   (up to {looks} of them the harness's own)"
        )
        with StatementCounter() as counter:
            idle(counter)


def idle(counter: StatementCounter) -> None:
    """Count what an idle worker does, once it has started."""
    from django_ayework import Worker

    with Worker():
        time.sleep(1)
        counter.counts.clear()
        cpu = time.process_time()
        time.sleep(IDLE_SECONDS)
        counts = dict(counter.counts)
        cpu = time.process_time() - cpu
    # A statement outside BEGIN and COMMIT is a transaction of its own: counting all others is an upper bound.
    transactions = sum(counts.values()) - counts.get("BEGIN", 0) - counts.get("COMMIT", 0)
    print(
        f"  idle worker     {transactions / IDLE_SECONDS:.2f} transactions per second at most   {counts}"
        f"   {cpu:.2f} s CPU in {IDLE_SECONDS} s"
    )


if __name__ == "__main__":
    main()
