"""What an explanation consists of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from django_ayework.rules.states import Status


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
