"""Measure and print the table.

python -m bench.peers                         all phases, all contestants
python -m bench.peers --own drain latency     two phases, ours and the raw loops only
python -m bench.peers --only pgqueuer drain   ours, the raw loops and one peer
"""

from __future__ import annotations

import argparse
import os
import sys

from bench.peers.catalogue import OURS, PEERS, RAW, SHELLS
from bench.peers.contestant import Contestant
from bench.peers.phases import PHASES
from bench.peers.rounds import crews, measure
from bench.report.files import keep, scaled, write_tables
from bench.report.readings import Reading
from bench.report.table import render
from bench.report.targets import TARGETS
from bench.running import stop_in_order
from tests.databases import SERVICES, ask_all

LEAST = 50


def main() -> int:
    """Run what is asked for; return 1 when ours could not be measured though its database answers."""
    asked = arguments()
    stop_in_order()
    if asked.out:
        os.environ["BENCH_OUT"] = asked.out
    os.environ["BENCH_SCALE"] = str(asked.scale)
    ask_all()
    failed = False
    known: list[Reading] = []
    with crews(chosen(asked)) as everyone:
        for phase in PHASES:
            if asked.phases and phase.name not in asked.phases:
                continue
            count = scaled(phase.count, min(LEAST, phase.count))
            print(f"\n{phase.title}: {count}, {asked.rounds} rounds", flush=True)
            readings = measure(phase, everyone, asked.rounds, count)
            keep(phase.name, readings)
            known += readings
            print("\n" + render(readings, TARGETS, among=known), flush=True)
            failed |= any(
                one.contestant == "ours" and not one.rounds and SERVICES[one.database].answer
                for one in readings
            )
    print(f"all readings: {write_tables()}")
    return int(failed)


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("phases", nargs="*", help=", ".join(phase.name for phase in PHASES))
    parser.add_argument("--own", action="store_true", help="leave the peers out")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PEER", help="of the peers only this one"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=float(os.environ.get("BENCH_SCALE") or 1))
    parser.add_argument("--out", default="", help="folder for the tables, else BENCH_OUT, else bench/out")
    asked = parser.parse_args()
    if unknown := set(asked.phases) - {phase.name for phase in PHASES}:
        parser.error(
            f"expected phases among {', '.join(one.name for one in PHASES)}, got: {', '.join(unknown)}"
        )
    return asked


def chosen(asked: argparse.Namespace) -> list[Contestant]:
    """Return who takes part: ours and the raw loops always do."""
    peers = [peer for peer in PEERS if not asked.only or peer.name in asked.only]
    return [*OURS, *RAW, *SHELLS, *([] if asked.own else peers)]


if __name__ == "__main__":
    sys.exit(main())
