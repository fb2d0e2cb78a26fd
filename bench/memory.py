"""How much a worker's memory grows over two hundred thousand works."""

from __future__ import annotations

from bench.harness import drain, fill, scratch_database
from bench.rows import empty

WARM_UP = 20_000
JOBS = 200_000
STEP = 20_000


def main() -> None:
    """Print the resident memory after the warm-up, and by how much it has grown in the end."""
    from django_ayework.worker.admission import resident_bytes

    with scratch_database() as vendor:
        rounds(WARM_UP)
        warm = resident_bytes()
        rounds(JOBS)
        grown = resident_bytes() - warm
    print(f"{vendor}: memory of a process with a worker over {JOBS} no-op works, after {WARM_UP}")
    print(f"  {warm / 2**20:.1f} MiB, grown by {grown / 2**20:.1f} MiB")


def rounds(count: int) -> None:
    """Queue and drain so many works, some at a time."""
    for _ in range(count // STEP):
        empty()
        fill(STEP)
        drain()


if __name__ == "__main__":
    main()
