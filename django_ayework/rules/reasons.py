"""What an explanation consists of, and the reasons that controls and workers give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from django_ayework.rules.controls import Controls
from django_ayework.rules.states import Status
from django_ayework.rules.texts import counted

#: Queues that a sentence names.
NAMED = 5


class Code(StrEnum):
    """The subject of a reason, for programs; people read the text. New codes may come."""

    # the workers
    NO_WORKER = "no_worker"  # no worker is alive
    QUEUE_NOT_SERVED = "queue_not_served"  # workers are alive, none serves the queue
    WORKERS_BUSY = "workers_busy"  # every slot that could take it is in use
    BEHIND_OTHERS = "behind_others"  # works of its queue go first
    NEXT = "next"  # nothing holds it back
    # the controls
    TYPE_PAUSED = "type_paused"
    QUEUE_PAUSED = "queue_paused"
    AT_LIMIT = "at_limit"  # as many works of its type run as may
    OUTRANKED = "outranked"  # types of higher priority go first
    # its own time
    NOT_DUE = "not_due"  # its moment has not come
    DUE = "due"  # its moment has come, a worker has yet to make it pending
    RETRYING = "retrying"  # its last attempt failed
    DEFERRED = "deferred"  # its handler asked to come back later
    RETRIED_BY_HAND = "retried_by_hand"  # a user gave it new attempts
    PARKED = "parked"  # no worker that took it knew its type
    DEADLINE = "deadline"  # it expires at a moment to come
    PAST_DEADLINE = "past_deadline"  # the next worker that polls ends it as expired
    # other works
    WAITS_FOR_WORKS = "waits_for_works"  # a gate whose condition is not met
    CANNOT_BE_MET = "cannot_be_met"  # it could be met only if works were retried
    RECHECK = "recheck"  # a worker has yet to check its condition again
    NO_WAITER = "no_waiter"  # the record of what it waits for is lost
    # a worker has it
    RUNNING = "running"  # a worker runs it
    WORKER_STOPPED = "worker_stopped"  # that worker has stopped
    WORKER_SILENT = "worker_silent"  # that worker sends no heartbeats any more
    WORKER_UNKNOWN = "worker_unknown"  # there is no trace of that worker
    LEASE_LAPSED = "lease_lapsed"  # the next worker that polls takes it back
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


def pauses(type: str, queue: str, controls: Controls) -> list[Reason]:
    """Return whether the type or its queue is paused, and how to go on."""
    found = []
    for kind, name, paused, code in (
        ("type", type, controls.of(type).paused, Code.TYPE_PAUSED),
        ("queue", queue, queue in controls.paused_queues, Code.QUEUE_PAUSED),
    ):
        if paused:
            how = f"resume({kind}={name!r}) or the admin's controls let it go on"
            found.append(Reason(code, f"Its {kind} {name!r} is paused; {how}.", {kind: name}))
    return found


def limits(type: str, queue: str, running: int, waiting: Iterable[str], controls: Controls) -> list[Reason]:
    """Return the limit of a type that is reached, and the types of its queue that rank above it.

    ``running`` counts its works that run now, ``waiting`` are the types of which the queue has due works.
    """
    found = []
    control = controls.of(type)
    if control.max_running and running >= control.max_running:
        run = f"{counted(running, 'work')} of it {'runs' if running == 1 else 'run'}"
        text = f"Its type {type!r} is at its limit: {run}, and {control.max_running} may."
        found.append(Reason(Code.AT_LIMIT, text, {"running": running, "max_running": control.max_running}))
    above = sorted(other for other in waiting if controls.of(other).priority > control.priority)
    if above:
        text = f"Types of higher priority go first in its queue {queue!r}: {', '.join(map(repr, above))}."
        found.append(Reason(Code.OUTRANKED, text, {"queue": queue, "types": above}))
    return found


def no_worker() -> list[Reason]:
    """Return that no worker is alive."""
    return [Reason(Code.NO_WORKER, "No worker is alive; start one with: manage.py ayework_worker")]


def absence(queue: str, workers: Sequence[WorkerSeen]) -> list[Reason]:
    """Return why no live worker takes, or takes back, a work of this queue; nothing when one does."""
    if not workers:
        return no_worker()
    if any(worker.serves(queue) for worker in workers):
        return []
    served = sorted({queue for worker in workers for queue in worker.queues})
    named = ", ".join(map(repr, served[:NAMED])) + (", …" if len(served) > NAMED else "")
    verb = "serves" if len(workers) == 1 else "serve"
    text = f"No live worker serves its queue {queue!r}: {counted(len(workers), 'worker')} {verb} {named}."
    facts = {"queue": queue, "served": served, "workers": len(workers)}
    return [Reason(Code.QUEUE_NOT_SERVED, text, facts)]


def busy(queue: str, workers: Sequence[WorkerSeen]) -> list[Reason]:
    """Return that all workers of the queue are busy, if they are; at least one must serve it."""
    serving = [worker for worker in workers if worker.serves(queue)]
    if any(worker.running < worker.concurrency for worker in serving):
        return []
    running = sum(worker.running for worker in serving)
    slots = sum(worker.concurrency for worker in serving)
    which = "the worker that serves" if len(serving) == 1 else f"the {len(serving)} workers that serve"
    text = f"All slots of {which} its queue {queue!r} were busy at the last heartbeat ({running}/{slots})."
    facts = {"queue": queue, "running": running, "concurrency": slots, "workers": len(serving)}
    return [Reason(Code.WORKERS_BUSY, text, facts)]
