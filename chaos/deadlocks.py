"""Mixed single calls beside workers: how many deadlocks there are, who sees them, how long calls take."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chaos import tables
from chaos.ledger import Ledger, Line, read
from chaos.processes import Enqueuers, Fleet, environment
from chaos.servers import Server

WORKERS = 3
CALLERS = 2


@dataclass
class Measured:
    """The line of one database in the table."""

    database: str
    seed: str
    seconds: float
    skipped: str = ""
    calls: int = 0
    works: int = 0
    #: As the server counts them; SQLite has none.
    deadlocks: int = 0
    #: Those that a caller saw as an exception.
    seen_by_callers: int = 0
    #: Attempts of atomic and staged works that a deadlock has failed.
    failed_attempts: int = 0
    other_errors: int = 0
    #: Of one call, in seconds, and which it was.
    longest: float = 0.0
    longest_call: str = ""
    #: What 99 of 100 calls are quicker than, in seconds.
    usual: float = 0.0
    live: int = 0
    errors: list[str] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        return asdict(self)


def measure(server: Server, seed: str, seconds: float, folder: Path) -> Measured:
    """Let callers and workers meet for so long."""
    server.empty()
    ledger = Ledger(folder, "harness")
    env = environment(server.url(), folder)
    fleet = Fleet(folder, ledger, env)
    callers = Enqueuers(folder, ledger, env)
    before = server.deadlocks()
    try:
        for _ in range(WORKERS):
            fleet.start(["--concurrency", "4"])
        fleet.watch()
        callers.start(CALLERS, f"{seed}-{server.name}", module="chaos.caller")
        time.sleep(seconds)
    finally:
        callers.stop()
        time.sleep(1.0)
        fleet.stop()
        ledger.close()
    time.sleep(1.0)  # PostgreSQL tells its counters when a session ends
    measured = Measured(server.name, seed, seconds, deadlocks=server.deadlocks() - before)
    with server.cursor() as cursor:
        take_tables(measured, tables.read(cursor))
    take_calls(measured, [line for line in read(folder) if line["e"] == "call"])
    return measured


def take_tables(measured: Measured, read: tables.Tables) -> None:
    """Count what the database tells."""
    measured.works = len(read.works)
    measured.live = sum(work.is_live for work in read.works.values())
    measured.failed_attempts = sum(is_deadlock(attempt.error) for attempt in read.attempts)


def take_calls(measured: Measured, calls: list[Line]) -> None:
    """Count what the callers tell."""
    errors = [call["error"] for call in calls if call["error"]]
    measured.calls = len(calls)
    measured.seen_by_callers = sum(map(is_deadlock, errors))
    measured.other_errors = len(errors) - measured.seen_by_callers
    measured.errors = [f"{count} x {text}" for text, count in Counter(errors).most_common(5)]
    if calls:
        by_time = sorted(calls, key=lambda call: call["took"])
        measured.longest, measured.longest_call = by_time[-1]["took"], by_time[-1]["what"]
        measured.usual = by_time[int(len(by_time) * 0.99)]["took"]


def is_deadlock(error: str) -> bool:
    """Return whether the server has ended the transaction because of a deadlock."""
    return "deadlock" in error.lower()
