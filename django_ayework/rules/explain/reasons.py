"""What an explanation consists of: codes, reasons, and the words of a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django_ayework.rules.controls import Controls
from django_ayework.rules.states import Status

# --- explanation ---
# What an explanation consists of.


class Code(StrEnum):
    """What a reason is about; programs go by it, people by the text. New codes may come."""

    # the fleet
    NO_WORKER = "no_worker"  # no worker is alive
    QUEUE_NOT_SERVED = "queue_not_served"  # workers are alive, none serves the queue
    WORKERS_BUSY = "workers_busy"  # every slot that could take it is in use
    BEHIND_OTHERS = "behind_others"  # works of its queue go first
    NEXT = "next"  # nothing holds it back
    # what operators have decided
    TYPE_PAUSED = "type_paused"
    QUEUE_PAUSED = "queue_paused"
    AT_LIMIT = "at_limit"  # as many works of its type run as may
    OUTRANKED = "outranked"  # types of higher priority go first
    # its own time
    NOT_DUE = "not_due"  # its moment has not come
    DUE = "due"  # its moment has come, a worker has yet to notice
    RETRYING = "retrying"  # its last attempt failed
    DEFERRED = "deferred"  # its handler asked to come back later
    RETRIED_BY_HAND = "retried_by_hand"  # somebody gave it another life
    PARKED = "parked"  # no worker that took it knew its type
    DEADLINE = "deadline"  # it expires at a moment to come
    PAST_DEADLINE = "past_deadline"  # the next worker to look ends it as expired
    # other works
    WAITS_FOR_WORKS = "waits_for_works"  # a gate whose condition is not met
    CANNOT_BE_MET = "cannot_be_met"  # it could be met only if works were retried
    SECOND_LOOK = "second_look"  # a worker has yet to look at it again
    NO_WAITER = "no_waiter"  # what it waits for is lost
    # a worker has it
    RUNNING = "running"  # a worker runs it
    WORKER_STOPPED = "worker_stopped"  # that worker has stopped
    WORKER_SILENT = "worker_silent"  # that worker does not beat any more
    WORKER_UNKNOWN = "worker_unknown"  # there is no trace of that worker
    LEASE_LAPSED = "lease_lapsed"  # the next worker to look takes it back
    # it has ended
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    EXHAUSTED = "exhausted"
    ABORTED = "aborted"
    EXPIRED = "expired"
    UNSATISFIABLE = "unsatisfiable"
    UNKNOWN_TYPE = "unknown_type"
    BAD_INPUT = "bad_input"
    DIED = "died"  # for a reason that this version does not know


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: a code, one or two sentences, and the facts they are made of."""

    code: Code
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a work is not running, or that it is; ``str()`` gives the reasons as sentences.

    >>> str(Explanation("a", Status.PENDING, (Reason(Code.NEXT, "It is next."),)))
    'It is next.'
    """

    id: str
    status: Status
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return " ".join(reason.text for reason in self.reasons)


# --- words ---
# Moments, durations, errors and lists as they stand in a sentence.

LONGEST_ERROR = 200


def duration(seconds: float) -> str:
    """Return a duration by its two largest units.

    >>> duration(0.25), duration(1.5), duration(90), duration(86400), duration(3725)
    ('250 ms', '1.5 s', '1 min 30 s', '1 d', '1 h 2 min')
    """
    if 0 < seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = timedelta(seconds=round(seconds))
    hours, rest = divmod(whole.seconds, 3600)
    parts = ((whole.days, "d"), (hours, "h"), (rest // 60, "min"), (rest % 60, "s"))
    return " ".join([f"{number} {unit}" for number, unit in parts if number][:2])


def moment(at: datetime, now: datetime) -> str:
    """Return a moment in the zone of ``now``, and how far away it is.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> moment(noon + timedelta(minutes=5), noon), moment(noon - timedelta(hours=1), noon)
    ('2026-01-01 12:05:00 UTC (in 5 min)', '2026-01-01 11:00:00 UTC (1 h ago)')
    """
    away = round((at - now).total_seconds())
    distance = f"in {duration(away)}" if away > 0 else f"{duration(-away)} ago" if away else "now"
    return f"{at.astimezone(now.tzinfo):%Y-%m-%d %H:%M:%S %Z} ({distance})"


def ended(at: datetime | None, now: datetime) -> str:
    """Return when something ended, for the end of a sentence; nothing when that is not known."""
    return "" if at is None else f" at {moment(at, now)}"


def error_line(error: str) -> str:
    """Return the first line of an error, shortened.

    >>> error_line("ValueError: no\\nmore"), error_line("")
    ('ValueError: no', 'no error was kept')
    """
    lines = error.strip().splitlines()
    if not lines:
        return "no error was kept"
    return lines[0] if len(lines[0]) <= LONGEST_ERROR else lines[0][: LONGEST_ERROR - 1] + "…"


def sentence(text: str) -> str:
    """Return a text that ends as a sentence does.

    >>> sentence("It failed: no luck"), sentence("Why?")
    ('It failed: no luck.', 'Why?')
    """
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "work"), counted(1200, "work")
    ('1 work', '1200 works')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(items: Sequence[str], total: int) -> str:
    """Return the first items of ``total``, and how many more there are.

    >>> listed(["a", "b"], 2), listed(["a", "b"], 7)
    ('a, b', 'a, b and 5 more')
    """
    more = total - len(items)
    return ", ".join(items) + (f" and {more} more" if more > 0 else "")


# --- control ---
# What operators have decided about its type or queue.


def pauses(type: str, queue: str, controls: Controls) -> list[Reason]:
    """Return whether the type or its queue is paused, and how to go on."""
    found = []
    if controls.of(type).paused:
        text = f"Its type {type!r} is paused; resume(type={type!r}) or the admin's controls let it go on."
        found.append(Reason(Code.TYPE_PAUSED, text, {"type": type}))
    if queue in controls.paused_queues:
        text = f"Its queue {queue!r} is paused; resume(queue={queue!r}) or the admin's controls let it go on."
        found.append(Reason(Code.QUEUE_PAUSED, text, {"queue": queue}))
    return found


def limits(type: str, queue: str, running: int, waiting: Iterable[str], controls: Controls) -> list[Reason]:
    """Return what keeps a type back: its limit, and types of its queue that rank above it.

    ``running`` counts its works that run now, ``waiting`` are the types of which the queue has due works.
    """
    found = []
    control = controls.of(type)
    if control.max_running and running >= control.max_running:
        text = (
            f"Its type {type!r} is at its limit: {counted(running, 'work')} of it "
            f"{'runs' if running == 1 else 'run'}, and {control.max_running} may."
        )
        found.append(Reason(Code.AT_LIMIT, text, {"running": running, "max_running": control.max_running}))
    above = sorted(other for other in waiting if controls.of(other).priority > control.priority)
    if above:
        text = f"Types of higher priority go first in its queue {queue!r}: {', '.join(map(repr, above))}."
        found.append(Reason(Code.OUTRANKED, text, {"queue": queue, "types": above}))
    return found


# --- fleet ---
# What the workers have to do with it: none there, none for the queue, all of them busy.

#: Queues that a sentence names.
NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker by its last heartbeat; no queues means all."""

    id: str
    name: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    running: int
    seen_at: datetime
    stopped_at: datetime | None

    def __str__(self) -> str:
        address = f"{self.host}:{self.pid}"
        return f"{self.name} ({address})" if self.name else address

    def serves(self, queue: str) -> bool:
        """Tell whether the worker takes works of this queue."""
        return not self.queues or queue in self.queues

    @property
    def is_busy(self) -> bool:
        """Whether all its slots were in use when it last told."""
        return self.running >= self.concurrency


def absence(queue: str, workers: Sequence[WorkerSeen]) -> list[Reason]:
    """Return why no live worker takes, or takes back, a work of this queue; nothing when one does."""
    if not workers:
        return no_worker()
    if any(worker.serves(queue) for worker in workers):
        return []
    served = sorted({queue for worker in workers for queue in worker.queues})
    named = ", ".join(map(repr, served[:NAMED])) + (", …" if len(served) > NAMED else "")
    text = (
        f"No live worker serves its queue {queue!r}: {counted(len(workers), 'worker')} "
        f"{'serves' if len(workers) == 1 else 'serve'} {named}."
    )
    facts = {"queue": queue, "served": served, "workers": len(workers)}
    return [Reason(Code.QUEUE_NOT_SERVED, text, facts)]


def no_worker() -> list[Reason]:
    """Return that nobody is there."""
    return [Reason(Code.NO_WORKER, "No worker is alive; start one with: manage.py ayework_worker")]


def press(queue: str, workers: Sequence[WorkerSeen]) -> list[Reason]:
    """Return that all workers which serve the queue are busy, if they are; at least one must serve it."""
    serving = [worker for worker in workers if worker.serves(queue)]
    if not all(worker.is_busy for worker in serving):
        return []
    running = sum(worker.running for worker in serving)
    slots = sum(worker.concurrency for worker in serving)
    whose = "the worker" if len(serving) == 1 else f"the {len(serving)} workers"
    text = (
        f"All slots of {whose} that {'serves' if len(serving) == 1 else 'serve'} its queue {queue!r} were "
        f"busy at the last heartbeat ({running}/{slots})."
    )
    facts = {"queue": queue, "running": running, "concurrency": slots, "workers": len(serving)}
    return [Reason(Code.WORKERS_BUSY, text, facts)]
