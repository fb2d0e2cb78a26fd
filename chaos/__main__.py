"""Faults, one after the other, on servers of the harness's own; all databases at the same time.

python -m chaos                                                every fault on every database
python -m chaos --only sqlite,postgres --faults kill,stop      some of them
python -m chaos --seed 123 --seconds 20                        again as in that run, longer
python -m chaos --quick                                        all faults mixed, for a minute
python -m chaos deadlocks --seconds 60                         mixed calls: deadlocks, and how long calls take
python -m chaos --write-docs                                   and write the tables into docs/
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.running import CLEAN_UP, stop_in_order
from chaos import report
from chaos.deadlocks import Measured
from chaos.faults import FAULTS
from chaos.on_database import DEADLOCKS
from chaos.run import Result
from chaos.servers import ROOT, SERVERS

QUICK_FAULTS = ("mixed",)
QUICK_SECONDS = 25.0
SECONDS = 8.0
#: What AYEWORK_TEST_ONLY may name besides; no work is kept there.
OF_OTHERS = ("redis",)


@dataclass
class Outcome:
    """What the processes of all databases have said."""

    results: list[Result] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    #: Databases whose process failed.
    broken: list[str] = field(default_factory=list)

    def take(self, database: str, said: dict[str, Any]) -> None:
        """Take what one has said, and tell it on the terminal."""
        if "version" in said:
            self.versions[database] = said["version"]
        elif "unavailable" in said:
            print(f"skipped: {SERVERS[database].title} ({said['unavailable']})", flush=True)
        elif "measured" in said:
            self.measured.append(Measured(**said["measured"]))
            print(report.measured_line(self.measured[-1]), flush=True)
        else:
            self.results.append(Result(**said["result"]))
            print(report.line(self.results[-1]), flush=True)

    @property
    def is_bad(self) -> bool:
        """Whether a promise was broken, the harness was, or nothing was tested."""
        is_empty = not self.measured and all(result.skipped for result in self.results)
        return is_empty or bool(self.broken) or any(result.is_bad for result in self.results)


def main(arguments: Sequence[str]) -> int:
    """Run; return 1 if anything was lost, doubled or stuck."""
    options = parse(arguments)
    stop_in_order()
    print(f"SEED={options.seed} ONLY={','.join(options.only)} SECONDS={options.seconds:g}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.chmod(0o755)  # servers run under accounts of their own
    try:
        outcome = run_all(options, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    say(outcome)
    if options.write_docs:
        report.write_docs(outcome.results, outcome.measured, outcome.versions, options.seconds)
        print(f"written: {report.PAGE.relative_to(ROOT)}")
    if options.keep or outcome.is_bad or any(result.findings for result in outcome.results):
        print(f"\nledgers and logs: {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if outcome.is_bad else 0


def run_all(options: argparse.Namespace, folder: Path) -> Outcome:
    """Start a process for each database, so many at a time."""
    outcome, lock, places = Outcome(), threading.Lock(), threading.Semaphore(options.jobs)
    processes: list[subprocess.Popen[str]] = []
    is_over = threading.Event()

    def run_on(database: str) -> None:
        with places:
            if is_over.is_set():
                return
            with lock:
                process = start(database, options, folder)
                processes.append(process)
            assert process.stdout
            for text in process.stdout:
                with lock:
                    outcome.take(database, json.loads(text))
            if process.wait():
                outcome.broken.append(database)

    threads = [threading.Thread(target=run_on, args=(name,)) for name in options.only]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        is_over.set()
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(CLEAN_UP)
        raise
    return outcome


def start(database: str, options: argparse.Namespace, folder: Path) -> subprocess.Popen[str]:
    """Start the process of one database."""
    place = folder / database
    place.mkdir()
    order = {
        "database": database,
        "faults": [name for name in options.faults if is_possible(name, database)],
        "seed": options.seed,
        "seconds": options.seconds,
        "folder": str(place),
    }
    command = [sys.executable, "-m", "chaos.on_database", json.dumps(order)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)


def is_possible(fault: str, database: str) -> bool:
    """Whether there is such a fault on a database."""
    return fault == DEADLOCKS or database in FAULTS[fault].is_possible_on


def say(outcome: Outcome) -> None:
    """Print what was found, and the tables."""
    if told := report.details(outcome.results):
        print(f"\n{told}")
    if outcome.results:
        print(f"\n{report.table(outcome.results)}")
    if outcome.measured:
        print(f"\n{report.measured_table(outcome.measured)}")
    if not outcome.results and not outcome.measured:
        print("\nnothing was tested")
    for database in outcome.broken:
        print(f"\n{SERVERS[database].title}: the harness itself failed; see above.")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "what", nargs="?", choices=[DEADLOCKS], help="measure this instead of applying faults"
    )
    parser.add_argument("--seed", help="what decides all random choices; without it, one that is printed")
    parser.add_argument("--only", default="", help=f"databases, of {','.join(SERVERS)}")
    parser.add_argument("--faults", default="", help=f"of {','.join(FAULTS)},{DEADLOCKS}")
    parser.add_argument("--seconds", type=float, help=f"of each fault; {SECONDS:g} unless given")
    parser.add_argument("--quick", action="store_true", help="all faults mixed, for a minute")
    parser.add_argument("--jobs", type=int, help="databases at a time; all, or one when calls are timed")
    parser.add_argument(
        "--keep", action="store_true", help="keep ledgers and logs also when nothing is found"
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="write the tables into the page Reliability"
    )
    options = parser.parse_args(arguments)
    options.seed = options.seed or str(random.SystemRandom().randrange(10**6))
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    only = names(parser, options.only, [*SERVERS, *OF_OTHERS])
    options.only = [name for name in SERVERS if name in only or not only]
    options.faults = [options.what] if options.what else names(parser, options.faults, [*FAULTS, DEADLOCKS])
    options.faults = options.faults or list(QUICK_FAULTS if options.quick else FAULTS)
    options.jobs = options.jobs or (1 if DEADLOCKS in options.faults else len(SERVERS))
    return options


def names(parser: argparse.ArgumentParser, text: str, known: list[str]) -> list[str]:
    """Read names that are separated by commas or spaces."""
    chosen = text.replace(",", " ").split()
    if unknown := [name for name in chosen if name not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
