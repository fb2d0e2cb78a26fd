"""One run: a load and a fault on one database, until everything has drained; then the check."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chaos import logs, recorded, tables
from chaos.checker import DOUBLED, LOST, STUCK, WRONG, Case, check, longest_recovery
from chaos.faults import Fault
from chaos.ledger import Ledger, read
from chaos.processes import CONCURRENCY, Enqueuers, Fleet, environment
from chaos.proxy import Proxy
from chaos.servers import Server

WORKERS = 3
ENQUEUERS = 2
#: Seconds within which all processes of a run have started.
PATIENCE = 30.0
#: Seconds within which everything must have drained.
LONGEST_DRAIN = 40.0
#: Seconds after the faults for which connections stay silent: the engine gives its own up long before.
SILENT_FOR = 12.0


@dataclass
class Result:
    """The line of one run in the table."""

    database: str
    fault: str
    seed: str
    title: str = ""
    skipped: str = ""
    #: Applications of the fault.
    applied: int = 0
    works: int = 0
    #: Attempts whose lease had lapsed.
    reclaimed: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0
    wrong: int = 0
    recovery: float | None = None
    tracebacks: int = 0
    findings: list[str] = field(default_factory=list)
    #: Errors that kept a fault from being applied.
    hindered: list[str] = field(default_factory=list)
    #: Why the harness itself could not finish the run.
    error: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether a promise was broken, or could not be looked at."""
        return bool(self.lost or self.doubled or self.stuck or self.error)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        return asdict(self)


class Run:
    """What a fault may reach: the server, the proxy, the fleet, the ledger of the harness."""

    def __init__(self, server: Server, kind: type[Fault], seed: str, folder: Path) -> None:
        self.server, self.kind, self.seed, self.folder = server, kind, seed, folder
        self.dice = random.Random(f"{seed}-{server.name}-{kind.name}")
        self.ledger = Ledger(folder, "harness")
        self.proxy: Proxy | None = None
        self._is_over = threading.Event()

    @property
    def is_told_to_end(self) -> bool:
        """Whether faults are to end."""
        return self._is_over.is_set()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._is_over.wait(seconds)

    def carry_out(self, seconds: float) -> None:
        """Run the load under the fault for so long, let everything drain, and stop the workers."""
        fault = self.kind(self, self.dice)
        with fault.surroundings(), self._proxied() as port:
            self.server.empty()
            direct = environment(self.server.url(), self.folder)
            workers = environment(self.server.url(port), self.folder)
            workers["CHAOS_TROUBLE"] = self.seed if self.kind.is_troubled else ""
            self.fleet = Fleet(self.folder, self.ledger, workers)
            enqueuers = Enqueuers(
                self.folder, self.ledger, direct | {"CHAOS_EXTRAS": ",".join(self.kind.extras)}
            )
            try:
                self._load(fault, seconds, enqueuers)
                healthy = self.fleet.start(["--concurrency", str(CONCURRENCY)], **direct, CHAOS_TROUBLE="")
                self.await_worker(healthy.pid)
                if not self.drain(SILENT_FOR):
                    self._restart_pooler()
                    if not self.drain(LONGEST_DRAIN - SILENT_FOR):
                        self.ledger.write("did not drain")
            finally:
                self.fleet.stop()
            with self.server.cursor() as cursor:
                self.tables = tables.read(cursor)

    def _load(self, fault: Fault, seconds: float, enqueuers: Enqueuers) -> None:
        """Run workers and enqueuers under the fault."""
        for _ in range(WORKERS):
            self.fleet.start(["--concurrency", str(CONCURRENCY), *self.kind.worker_options])
        for worker in self.fleet.alive():
            self.await_worker(worker.pid)
        self.fleet.watch()
        try:
            enqueuers.start(ENQUEUERS, f"{self.seed}-{self.server.name}-{self.kind.name}")
            self._apply(fault, seconds)
        finally:
            self._is_over.set()
            enqueuers.stop()

    def result(self) -> Result:
        """Check the run."""
        found = recorded.order(read(self.folder))
        case = Case(found, self.tables, self.kind.is_outage, self.kind.loses_leases)
        findings = check(case)
        counts = Counter(finding.category for finding in findings)
        tracebacks = logs.unexplained(self.folder, self.kind.is_outage)
        said = [f"{finding.category}: {finding.id} {finding.text}" for finding in findings]
        return Result(
            self.server.name,
            self.kind.name,
            self.seed,
            title=self.kind.title,
            applied=found.applied,
            works=len(self.tables.works),
            reclaimed=sum(attempt.outcome == "lost" for attempt in self.tables.attempts),
            lost=counts[LOST],
            doubled=counts[DOUBLED],
            stuck=counts[STUCK],
            wrong=counts[WRONG],
            recovery=longest_recovery(found),
            tracebacks=len(tracebacks),
            findings=[*said, *(f"traceback, {times} x: {one}" for one, times in Counter(tracebacks).items())],
            hindered=found.hindered,
        )

    def _restart_pooler(self) -> None:
        """Reset what is still silent, as an operator does in the end: handlers may wait there.

        By then the engine has replaced its own connections. A handler's session is the project's.
        """
        if self.proxy is not None:
            for pair in self.proxy.pairs():
                if pair.is_silent:
                    pair.cut()

    def drain(self, longest: float) -> bool:
        """Wait until every work has ended, at most so many seconds; return whether all have."""
        end_at = time.monotonic() + longest
        while time.monotonic() < end_at:
            with contextlib.suppress(Exception), self.server.cursor() as cursor:
                if tables.count_live(cursor) == 0:
                    return True
            time.sleep(0.2)
        return False

    def _apply(self, fault: Fault, seconds: float) -> None:
        """Apply the fault at random moments; at least once."""
        end_at = time.monotonic() + seconds
        self._await_load()
        self.sleep(self.dice.uniform(0.2, 1.0))
        while True:
            fault.apply_noted()
            self.sleep(self.dice.uniform(0.1, fault.pause))
            if time.monotonic() >= end_at:
                return

    def await_worker(self, pid: int) -> None:
        """Wait until a worker takes works."""
        end_at = time.monotonic() + PATIENCE
        while not any(line["e"] == "up" and line["pid"] == pid for line in read(self.folder)):
            if time.monotonic() > end_at:
                raise RuntimeError(f"the worker {pid} did not start; see {self.folder}")
            time.sleep(0.1)

    def _await_load(self) -> None:
        end_at = time.monotonic() + PATIENCE
        while not any(line["e"] == "first calls" for line in read(self.folder)):
            if time.monotonic() > end_at:
                raise RuntimeError(f"too little was enqueued; see {self.folder}")
            time.sleep(0.1)

    @contextlib.contextmanager
    def _proxied(self) -> Iterator[int]:
        if not (self.kind.is_proxied and self.server.has_network):
            yield 0
            return
        with Proxy(self.server.port) as self.proxy:
            yield self.proxy.port


def run_one(server: Server, kind: type[Fault], seed: str, seconds: float, place: Path) -> Result:
    """Carry out one run, or tell why it cannot be."""
    if hindrance := kind.hindrance(server):
        return Result(server.name, kind.name, seed, title=kind.title, skipped=hindrance)
    run = Run(server, kind, seed, place)
    try:
        run.carry_out(seconds)
        return run.result()
    except Exception as error:
        traceback.print_exc()
        said = f"{type(error).__name__}: {error}"
        return Result(server.name, kind.name, seed, title=kind.title, error=said, findings=[said])
    finally:
        run.ledger.close()
