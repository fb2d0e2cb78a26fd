"""Every measurement, or those that are named, on every database that answers."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.databases import SERVICES, ask_all

MEASUREMENTS = (
    "bench.statements",
    "bench.retained",
    "bench.fanout",
    "bench.sleepers",
    "bench.flood",
    "bench.killed",
    "bench.stopped",
    "bench.limited",
    "bench.memory",
    "bench.schedules",
)


def main() -> int:
    """Run each measurement in a process of its own; return the number of those that failed."""
    asked = [f"bench.{name}" for name in sys.argv[1:]] or MEASUREMENTS
    chosen = [name for name in MEASUREMENTS if name in asked]
    ask_all()
    failures = 0
    for service in SERVICES.values():
        if service.runs_suite and service.answer:
            env = os.environ | ({"DATABASE_URL": service.url} if service.url else {})
            for measurement in chosen:
                print(flush=True)
                failures += subprocess.run([sys.executable, "-m", measurement], env=env).returncode != 0
    return failures


if __name__ == "__main__":
    sys.exit(main())
