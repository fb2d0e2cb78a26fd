"""What is measured: each phase is a function of a crew, a setting and a count, and returns figures."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from bench.peers.contestant import Setting
from bench.peers.crew import Crew
from bench.peers.idleness import watch
from bench.peers.scratch import settle
from bench.report.targets import START_UP

Figures = Mapping[str, float]

RATE = "jobs/s"
#: The longest a drain is watched, in seconds; what has been done until then is the rate of a slow contestant.
LONGEST_DRAIN = 25.0
#: Seconds between two enqueues of the latency phase, and before the first of them.
GAP, IDLE = 0.05, 4.0
#: Seconds after which idle sessions of PostgreSQL have told what they did (PGSTAT_IDLE_INTERVAL: 10 s).
TOLD = 12.0
#: The job that shows that a worker is up; those of a phase count from 0.
FIRST_NUMBER = -1


@dataclass(frozen=True)
class Phase:
    """A phase of the comparison."""

    name: str
    title: str
    count: int  # jobs at scale 1
    settings: str  # under which name contestants keep their settings for it
    measure: Callable[[Crew, Setting, int], Figures]
    peers_once: bool = False  # one round says enough of those to whom nothing is held here


def enqueue_one(crew: Crew, setting: Setting, count: int) -> Figures:
    """Queue one by one, each committed before the next."""
    crew.ask("clear")
    settle(crew.url)
    _, seconds = crew.timed("enqueue_each", count)
    return {RATE: count / seconds}


def enqueue_many(crew: Crew, setting: Setting, count: int) -> Figures:
    """Queue through what the contestant has for many."""
    crew.ask("clear")
    settle(crew.url)
    _, seconds = crew.timed("enqueue_many", count, setting.value)
    return {RATE: count / seconds}


def drain(crew: Crew, setting: Setting, count: int, workers: int = 1, fill: str = "fill") -> Figures:
    """Let workers do what is queued; the clock runs from the gate to the last job recorded as ended."""
    crew.ask("clear")
    crew.ask(fill, count)
    settle(crew.url)
    crew.trace.reset()
    with crew.workers(setting.value, workers):
        opened = crew.trace.open_gate(crew.processes(setting.value) * workers)
        left = await_end(crew, count, until=opened + LONGEST_DRAIN)
        seconds = time.monotonic() - opened
    return {RATE: (count - left) / seconds}


def await_end(crew: Crew, count: int, until: float) -> int:
    """Wait until all jobs are recorded as ended, or for so long; return how many are not."""
    while crew.trace.count() < count and time.monotonic() < until:
        time.sleep(0.002)
    while (left := int(crew.ask("pending"))) and time.monotonic() < until:
        time.sleep(0.002)
    return left


def drain_two(crew: Crew, setting: Setting, count: int) -> Figures:
    """Drain with two workers."""
    return drain(crew, setting, count, workers=2)


def drain_atomic(crew: Crew, setting: Setting, count: int) -> Figures:
    """Drain jobs that each write a row of the application in the transaction that ends them."""
    return drain(crew, setting, count, fill="fill_atomic")


def latency(crew: Crew, setting: Setting, count: int) -> Figures:
    """Queue beside an idle worker; what is counted is the time from the end of the enqueue to the job."""
    with idle_worker(crew, setting):
        queued = crew.ask("enqueue_paced", count, GAP)
        await_jobs(crew, count + 1)
        ran = crew.trace.moments()
    waits = sorted(1000 * (ran[number] - moment) for number, moment in enumerate(queued) if number in ran)
    if len(waits) < count:
        raise RuntimeError(f"only {len(waits)} of {count} jobs ran within {LONGEST_DRAIN:.0f} s of the last")
    return {"p50 ms": percentile(waits, 0.5), "p99 ms": percentile(waits, 0.99)}


@contextmanager
def idle_worker(crew: Crew, setting: Setting) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker on an empty queue; yield when it has done one job and been idle for a while."""
    crew.ask("clear")
    settle(crew.url)
    crew.trace.reset(gate_is_open=True)
    with crew.workers(setting.value, 1) as (worker,):
        crew.ask("enqueue_one", FIRST_NUMBER)
        await_jobs(crew, 1)
        time.sleep(IDLE)
        yield worker


def await_jobs(crew: Crew, count: int) -> None:
    """Wait until so many jobs have run, or for as long as a drain is watched."""
    until = time.monotonic() + LONGEST_DRAIN
    while crew.trace.count() < count and time.monotonic() < until:
        time.sleep(0.005)


def idle(crew: Crew, setting: Setting, seconds: int) -> Figures:
    """Watch an idle worker: what its processes use, and the transactions of its database."""
    with idle_worker(crew, setting) as worker:
        time.sleep(TOLD)
        return watch(worker.pid, crew.url, seconds)


def start_up(crew: Crew, setting: Setting, count: int) -> Figures:
    """Start a worker beside a job; the clock runs from the start of the process to the job."""
    crew.ask("clear")
    crew.ask("enqueue_one", FIRST_NUMBER)
    crew.processes(setting.value)
    crew.trace.reset(gate_is_open=True)
    started = time.monotonic()
    with crew.workers(setting.value, 1):
        await_jobs(crew, 1)
        (moment,) = crew.trace.moments().values()
    return {START_UP: moment - started}


def percentile(ordered: list[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


PHASES = (
    Phase("enqueue-one", "enqueue one by one", 3000, "enqueue-one", enqueue_one),
    Phase("enqueue-many", "enqueue many", 20_000, "enqueue-many", enqueue_many),
    Phase("drain", "drain, one worker", 10_000, "drain", drain),
    Phase("drain-two", "drain, two workers", 10_000, "drain", drain_two),
    Phase("atomic", "drain of atomic jobs", 3000, "atomic", drain_atomic),
    Phase("latency", "pick-up latency", 200, "latency", latency),
    Phase("idle", "idle worker, seconds watched", 20, "idle", idle, peers_once=True),
    Phase("start-up", "start of a worker", 1, "idle", start_up, peers_once=True),
)
