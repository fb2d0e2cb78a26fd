"""The ledgers of a run, put in order for the checker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from chaos.ledger import Line

COMMITTED, ROLLED_BACK, UNKNOWN = "committed", "rolled back", "unknown"


@dataclass
class Promise:
    """What one enqueueing call was to queue, and what became of it."""

    kind: str
    ids: list[str]
    facts: dict[str, Any]
    pid: int
    outcome: str = ""
    #: The ids of the handles; another one than was asked for, if the work was there already.
    handles: list[str] = field(default_factory=list)
    #: When the call began.
    began: float = 0.0


@dataclass
class Handler:
    """What an attempt's handler did."""

    began: float
    pid: int
    end: str = ""
    error: str = ""


@dataclass
class Recorded:
    """The ledgers of a run."""

    promises: dict[str, Promise] = field(default_factory=dict)
    #: Handlers by work and number of the attempt. A given back number is used again.
    handlers: dict[tuple[str, int], list[Handler]] = field(default_factory=lambda: defaultdict(list))
    ran: set[str] = field(default_factory=set)
    started: dict[str, float] = field(default_factory=dict)
    #: How often each work was announced as ended.
    settled: Counter[str] = field(default_factory=Counter)
    successes: list[float] = field(default_factory=list)
    #: Process ids of workers, by the id by which attempts name them.
    workers: dict[str, int] = field(default_factory=dict)
    #: Workers that were killed, that ended by themselves, or that stood still.
    disturbed: set[int] = field(default_factory=set)
    #: Workers that ended with another status than 0, and those for which there is a reason to.
    failed: dict[int, int] = field(default_factory=dict)
    excused: set[int] = field(default_factory=set)
    #: Workers that were told to stop and had to be killed.
    overdue: set[int] = field(default_factory=set)
    killed_enqueuers: set[int] = field(default_factory=set)
    fault_ends: list[float] = field(default_factory=list)
    applied: int = 0
    #: Errors that kept a fault from being applied.
    hindered: list[str] = field(default_factory=list)
    #: Lines that are missing: a process writes them one after the other.
    gaps: list[str] = field(default_factory=list)

    def runs_of(self, id: str) -> list[Handler]:
        """Return what the handlers of a work did in its first attempt, however often it was made."""
        return self.handlers.get((id, 1), [])

    @property
    def asked(self) -> set[str]:
        """The ids that were asked for by any call."""
        return {id for promise in self.promises.values() for id in promise.ids}


def order(lines: Iterable[Line]) -> Recorded:
    """Put the lines of all ledgers in order."""
    recorded = Recorded()
    lines = list(lines)
    recorded.gaps = list(gaps(lines))
    for line in lines:
        if taker := TAKERS.get(line["e"]):
            taker(recorded, line)
    return recorded


def gaps(lines: Iterable[Line]) -> Iterator[str]:
    """Return the names of the files in which a line before the last one is missing."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        numbers[line["file"]].append(line["s"])
    for file, found in numbers.items():
        if missing := sorted(set(range(max(found) + 1)) - set(found)):
            yield f"{file} lacks the lines {missing[:5]}"


def take_will(recorded: Recorded, line: Line) -> None:
    recorded.promises[line["p"]] = Promise(
        line["kind"], line["ids"], line["facts"], line["pid"], began=line["t"]
    )


def take_outcome(recorded: Recorded, line: Line) -> None:
    if promise := recorded.promises.get(line["p"]):
        promise.outcome = line["e"]
        promise.handles = line.get("ids", [])


def take_start(recorded: Recorded, line: Line) -> None:
    recorded.handlers[line["id"], line["n"]].append(Handler(line["t"], line["pid"]))
    recorded.started.setdefault(line["id"], line["t"])


def take_end(recorded: Recorded, line: Line) -> None:
    for handler in reversed(recorded.handlers[line["id"], line["n"]]):
        if handler.pid == line["pid"] and not handler.end:
            handler.end, handler.error = line["e"], line.get("error", "")
            break
    if line["e"] == "ok":
        recorded.ran.add(line["id"])


def take_settled(recorded: Recorded, line: Line) -> None:
    recorded.settled[line["id"]] += 1
    if line["kind"] == "succeeded":
        recorded.successes.append(line["t"])


def take_up(recorded: Recorded, line: Line) -> None:
    if "worker" in line:
        recorded.workers[line["worker"]] = line["pid"]


def take_signal(recorded: Recorded, line: Line) -> None:
    # One that is told to stop may be told again, and ends at once then.
    if line["signal"] in ("SIGKILL", "SIGTERM"):
        recorded.excused.add(line["worker_pid"])
    if line["signal"] in ("SIGKILL", "SIGSTOP"):
        recorded.disturbed.add(line["worker_pid"])


def take_worker_ended(recorded: Recorded, line: Line) -> None:
    if line["status"] != 0:
        recorded.disturbed.add(line["worker_pid"])
        recorded.failed[line["worker_pid"]] = line["status"]


def take_exit(recorded: Recorded, line: Line) -> None:
    recorded.excused.add(line["pid"])


def take_overdue(recorded: Recorded, line: Line) -> None:
    recorded.overdue.add(line["worker_pid"])


def take_enqueuer_killed(recorded: Recorded, line: Line) -> None:
    recorded.killed_enqueuers.add(line["enqueuer_pid"])


def take_fault_begins(recorded: Recorded, line: Line) -> None:
    recorded.applied += 1


def take_hindered(recorded: Recorded, line: Line) -> None:
    recorded.hindered.append(f"{line['fault']}: {line['error']}")


def take_fault_ends(recorded: Recorded, line: Line) -> None:
    recorded.fault_ends.append(line["t"])


TAKERS = {
    "will": take_will,
    COMMITTED: take_outcome,
    ROLLED_BACK: take_outcome,
    UNKNOWN: take_outcome,
    "start": take_start,
    "ok": take_end,
    "fail": take_end,
    "settled": take_settled,
    "up": take_up,
    "signal": take_signal,
    "worker ended": take_worker_ended,
    "exit": take_exit,
    "did not stop": take_overdue,
    "enqueuer killed": take_enqueuer_killed,
    "fault begins": take_fault_begins,
    "fault ends": take_fault_ends,
    "hindered": take_hindered,
}
