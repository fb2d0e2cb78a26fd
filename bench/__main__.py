"""Every measurement, or those that are named, on every database that answers.

python -m bench                     all, the comparison with the peers first
python -m bench drain latency       two phases of the comparison, without the peers
python -m bench drain peers         one phase, with the peers
python -m bench memory churn        two others
"""

from __future__ import annotations

import os
import sys

from bench.report.files import write_tables
from bench.running import run, stop_in_order
from bench.selection import select
from tests.databases import SERVICES, ask_all


def main() -> int:
    """Run each measurement in a process of its own; return the number of those that failed."""
    selection = select(sys.argv[1:])
    stop_in_order()
    failures = sum(run(command) != 0 for command in selection.commands())
    if selection.on_each:
        ask_all()
    for service in SERVICES.values():
        if service.runs_suite and service.answer:
            env = os.environ | ({"DATABASE_URL": service.url} if service.url else {})
            for name in selection.on_each:
                print(flush=True)
                command = [sys.executable, "-m", f"bench.{name}"]
                failures += run(command, env) != 0
    print(f"\ntables: {write_tables()}")
    return failures


if __name__ == "__main__":
    sys.exit(main())
