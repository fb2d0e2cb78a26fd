"""Works whose ids Redis Streams deliver, beside works that are claimed from the table, on PostgreSQL.

Pick-up latency beside LISTEN, the drain by two processes, and the queueing of many. The rounds alternate.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from operator import truediv

from bench.peers.contestant import Contestant, Setting
from bench.peers.phases import PHASES
from bench.peers.rounds import crews, measure
from bench.report.files import keep, scaled
from bench.report.readings import Reading
from bench.report.targets import FROM_TABLE, OURS, STREAMS
from bench.running import stop_in_order
from tests.databases import SERVICES, ask_all

ROUNDS = 7
#: A phase of the comparison, the name of its readings here, and by what its count is multiplied: a drain by
#: two processes is over too soon to be compared closely.
MEASURED = (
    ("latency", "queue-port latency", 2),
    ("drain-two", "queue-port drain", 4),
    ("enqueue-many", "queue-port enqueue", 1),
)


def main() -> int:
    """Print the figures, and the median of the ratios of each round; return 1 where nothing was measured."""
    stop_in_order()
    ask_all()
    if missing := [SERVICES[name].title for name in ("postgres", "redis") if not SERVICES[name].answer]:
        print(f"not measured: {' and '.join(missing)} did not answer")
        return 1
    readings: list[Reading] = []
    with crews([contestant(FROM_TABLE), contestant(STREAMS, BENCH_STREAMS=SERVICES["redis"].url)]) as both:
        for name, own_name, factor in MEASURED:
            phase = next(each for each in PHASES if each.name == name)
            count = scaled(phase.count * factor, 50)
            print(f"\n{phase.title}: {count}, {ROUNDS} rounds", flush=True)
            taken = measure(replace(phase, name=own_name), both, ROUNDS, count)
            found = [replace(one, contestant=OURS) for one in taken]
            if reason := next((one.reason for one in found if one.reason), ""):
                print(f"  not measured: {reason}")
                return 1
            print(compared(found), flush=True)
            readings += found
    keep("queue_port", readings)
    return 0


def contestant(title: str, **env: str) -> Contestant:
    """Return ours, in one of the two ways; the database is named after the contestant."""
    phases = dict.fromkeys(("latency", "drain", "enqueue-many"), (Setting(title),))
    return Contestant(f"{OURS} {title}", "postgres", "ours", phases, env=env)


def compared(readings: Sequence[Reading]) -> str:
    """Return a line for each figure: both medians, and the median of the ratios of the rounds."""
    lines = []
    for table in (one for one in readings if one.setting == FROM_TABLE):
        streams = next(one for one in readings if (one.setting, one.figure) == (STREAMS, table.figure))
        ratio = statistics.median(map(truediv, streams.rounds, table.rounds))
        lines.append(
            f"  {table.figure:8} {FROM_TABLE} {table.median:,.2f}, {STREAMS} {streams.median:,.2f}, "
            f"ratio {ratio:.2f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
