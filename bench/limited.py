"""Two worker processes of eight threads, and a type of which three may run: how many ever did at a time."""

from __future__ import annotations

from collections import Counter

from bench.harness import process_env, scratch_database

WORKS = 500
MOST = 3


def main() -> None:
    """Print how many works ran, as each of them has counted, and who ran them."""
    with scratch_database() as vendor:
        peaks, processes = measure(process_env())
    print(f"{vendor}: {WORKS} works of a type with max_running={MOST}, two worker processes of 8 threads")
    print(f"  running at a time, as each work saw it: {dict(sorted(peaks.items()))}; at most {max(peaks)}")
    print(f"  works by process: {sorted(processes.values())}")


def measure(env: dict[str, str]) -> tuple[Counter[int], Counter[str | None]]:
    from bench.works import limited
    from django_ayework import enqueue_many
    from django_ayework.models import Work
    from tests.processes import ended, worker_process

    handles = enqueue_many([limited() for _ in range(WORKS)])
    options = ("--burst", "--concurrency", "8", "--verbosity", "0")
    with worker_process(env, *options) as one, worker_process(env, *options) as another:
        for process in (one, another):
            status, output = ended(process)
            if status:
                raise SystemExit(output)
    peaks = Counter(handle.result(timeout=0) for handle in handles)
    return peaks, Counter(Work.objects.values_list("completed_by", flat=True))


if __name__ == "__main__":
    main()
