"""Why a work waits: facts in, reasons in words out. ``flow.explain`` reads the facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from django_ayework.rules.conditions import Condition, Count, Decision, Tally, decide, requirement
from django_ayework.rules.controls import Controls, command_to_resume
from django_ayework.rules.formatting import (
    Phrase,
    duration,
    listed,
    made,
    moment_text,
    phrase,
    phrases,
)
from django_ayework.rules.retry import has_expired
from django_ayework.rules.states import Status

#: A work, or a worker process, as the store reads it.
Row: TypeAlias = Any

#: Queues that a sentence names.
NAMED = 5
#: Seconds for which a due work may wait while slots are free.
UNTAKEN = 60.0


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
    DOER_LIMITS = "doer_limits"  # its type has a doer, for which workers take as many works as it asks for
    OUTRANKED = "outranked"  # types of higher priority go first
    # its own time
    NOT_DUE = "not_due"  # its moment has not come
    DUE = "due"  # its moment has come, a worker has yet to make it pending
    RETRYING = "retrying"  # its last attempt failed
    DEFERRED = "deferred"  # its handler asked to come back later
    RETRIED_BY_HAND = "retried_by_hand"  # a user gave it new attempts
    PARKED = "parked"  # no worker that took it knew its type
    DEADLINE = "deadline"  # it expires at a moment to come
    EXPIRES_WHEN_DUE = "expires_when_due"  # its deadline is before the moment that it waits for
    PAST_DEADLINE = "past_deadline"  # the next worker that polls ends it as expired
    # other works
    WAITS_FOR_WORKS = "waits_for_works"  # a gate whose condition is not met
    CANNOT_BE_MET = "cannot_be_met"  # it could be met only if works were retried
    CIRCLE = "circle"  # it waits for works that wait for it
    NOT_QUEUED = "not_queued"  # it waits for works that do not exist
    RECHECK = "recheck"  # a worker has yet to check its condition again
    NO_WAITER = "no_waiter"  # the record of its waiting is lost
    # a worker has it
    RUNNING = "running"  # a worker runs it
    IN_DOER = "in_doer"  # its type has a doer, where it may wait for its turn
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
    """The reasons why a work is not running, or that it runs; ``str()`` returns them as sentences.

    >>> str(Explanation("a", Status.PENDING, (Reason(Code.NEXT, "It is next."),)))
    'It is next.'
    """

    id: str
    status: Status
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return " ".join(reason.text for reason in self.reasons)


def word(text: str) -> str:
    """Return a status or an outcome as a phrase; the models mark their labels for the catalogues."""
    return made(text, "", text, {}) if text else text


def serves(worker: Row, queue: str) -> bool:
    """Tell whether a worker takes works of this queue; a worker without queues takes all."""
    return not worker.queues or queue in worker.queues.split(",")


def called(worker: Row) -> str:
    """Return the name and the address of a worker."""
    address = f"{worker.host}:{worker.pid}"
    return f"{worker.name} ({address})" if worker.name else address


def pauses(type: str, queue: str, controls: Controls) -> list[Reason]:
    """Return whether the type or its queue is paused, and how to go on."""
    found = []
    if controls.of(type).paused:
        text = phrase(
            "Its type %(type)s is paused; %(command)s or the admin's controls let it go on.",
            type=repr(type),
            command=command_to_resume("type", type),
        )
        found.append(Reason(Code.TYPE_PAUSED, text, {"type": type}))
    if queue in controls.paused_queues:
        text = phrase(
            "Its queue %(queue)s is paused; %(command)s or the admin's controls let it go on.",
            queue=repr(queue),
            command=command_to_resume("queue", queue),
        )
        found.append(Reason(Code.QUEUE_PAUSED, text, {"queue": queue}))
    return found


def limits(type: str, queue: str, running: int, waiting: Iterable[str], controls: Controls) -> list[Reason]:
    """Return the limit of a type that is reached, and the types of its queue that rank above it.

    ``running`` counts running works of the type, ``waiting`` has the types with due works in the queue.
    """
    found = []
    control = controls.of(type)
    if control.max_running and running >= control.max_running:
        text = phrases(
            "Its type %(type)s is at its limit: %(count)d work of the type runs, and at most %(most)d may "
            "run.",
            "Its type %(type)s is at its limit: %(count)d works of the type run, and at most %(most)d may "
            "run.",
            running,
            type=repr(type),
            most=control.max_running,
        )
        found.append(Reason(Code.AT_LIMIT, text, {"running": running, "max_running": control.max_running}))
    above = sorted(other for other in waiting if controls.of(other).priority > control.priority)
    if above:
        text = phrase(
            "Types of higher priority go first in its queue %(queue)s: %(types)s.",
            queue=repr(queue),
            types=[repr(each) for each in above],
        )
        found.append(Reason(Code.OUTRANKED, text, {"queue": queue, "types": above}))
    return found


#: No worker is alive.
NO_WORKER = Reason(Code.NO_WORKER, phrase("No worker is alive; start one with: manage.py ayework_worker"))


def absence(queue: str, workers: Sequence[Row]) -> list[Reason]:
    """Return why no live worker takes, or takes back, a work of this queue; nothing when one does."""
    if not workers:
        return [NO_WORKER]
    if any(serves(worker, queue) for worker in workers):
        return []
    served = sorted({queue for worker in workers for queue in worker.queues.split(",")})
    text = phrases(
        "No live worker serves its queue %(queue)s: %(count)d worker serves %(served)s.",
        "No live worker serves its queue %(queue)s: %(count)d workers serve %(served)s.",
        len(workers),
        queue=repr(queue),
        served=[*map(repr, served[:NAMED]), *(["…"] if len(served) > NAMED else [])],
    )
    facts = {"queue": queue, "served": served, "workers": len(workers)}
    return [Reason(Code.QUEUE_NOT_SERVED, text, facts)]


def busy(queue: str, workers: Sequence[Row]) -> list[Reason]:
    """Return that all workers of the queue are busy, if they are; at least one must serve it."""
    serving = [worker for worker in workers if serves(worker, queue)]
    if any(worker.running < worker.concurrency for worker in serving):
        return []
    running = sum(worker.running for worker in serving)
    slots = sum(worker.concurrency for worker in serving)
    text = phrases(
        "All slots of the worker that serves its queue %(queue)s were busy at the last heartbeat "
        "(%(running)d/%(slots)d).",
        "All slots of the %(count)d workers that serve its queue %(queue)s were busy at the last heartbeat "
        "(%(running)d/%(slots)d).",
        len(serving),
        queue=repr(queue),
        running=running,
        slots=slots,
    )
    facts = {"queue": queue, "running": running, "concurrency": slots, "workers": len(serving)}
    return [Reason(Code.WORKERS_BUSY, text, facts)]


def pending(
    queue: str, workers: Sequence[Row], ahead: int, most: int, poll: float, waited: float
) -> list[Reason]:
    """Return why a work that has been due for ``waited`` seconds is not taken.

    ``ahead`` above ``most`` means more than that.
    """
    if missing := absence(queue, workers):
        return missing
    reasons = busy(queue, workers)
    if ahead:
        text = works_before(queue, ahead, most)
        facts = {"queue": queue, "ahead": min(ahead, most), "more": ahead > most}
        reasons.append(Reason(Code.BEHIND_OTHERS, text, facts))
    if not reasons:
        reasons.append(Reason(Code.NEXT, its_turn(poll, waited), {"poll_interval": poll}))
    return reasons


def its_turn(poll: float, waited: float) -> Phrase:
    """Return that the work is the next one of its queue, and what to check if it is not taken for long."""
    if waited > UNTAKEN:
        return phrase(
            "It is next, and no worker has taken it for %(waited)s although slots are free. Check --types "
            "and --exclude-types of the workers, the types that their code defines, and the hook "
            "BACKPRESSURE.",
            waited=duration(waited),
        )
    return phrase("It is next: a worker will take it at its next poll, within %(poll)s.", poll=duration(poll))


def works_before(queue: str, ahead: int, most: int) -> Phrase:
    """Return how many works of the queue go first."""
    if ahead > most:
        return phrases(
            "More than %(count)d work are ahead of it in its queue %(queue)s: of higher priority, or due "
            "for longer.",
            "More than %(count)d works are ahead of it in its queue %(queue)s: of higher priority, or due "
            "for longer.",
            most,
            queue=repr(queue),
        )
    return phrases(
        "%(count)d work is ahead of it in its queue %(queue)s: of higher priority, or due for longer.",
        "%(count)d works are ahead of it in its queue %(queue)s: of higher priority, or due for longer.",
        ahead,
        queue=repr(queue),
    )


def scheduled(run_at: datetime, now: datetime, queue: str, workers: Sequence[Row] | None) -> list[Reason]:
    """Return that the work waits for its moment. ``workers`` are needed once that has come."""
    facts = {"run_at": run_at, "seconds": (run_at - now).total_seconds()}
    if run_at > now:
        return [Reason(Code.NOT_DUE, phrase("It is due at %(at)s.", at=moment_text(run_at, now)), facts)]
    text = phrase(
        "It was due at %(at)s; a worker makes it pending at its next poll.", at=moment_text(run_at, now)
    )
    return [Reason(Code.DUE, text, facts), *absence(queue, workers or ())]


def bound(
    deadline: datetime | None, now: datetime, opens: bool = False, due: datetime | None = None
) -> list[Reason]:
    """Return by when the work must start, or a gate must open, if it has a deadline.

    ``due`` is the moment that a scheduled work waits for.
    """
    if deadline is None:
        return []
    facts = {"deadline": deadline}
    at = moment_text(deadline, now)
    if due is not None and due > now and has_expired(deadline, due):
        text = phrase(
            "Its deadline, %(at)s, is before that: it expires when it is due, unless it is triggered before "
            "its deadline.",
            at=at,
        )
        return [Reason(Code.EXPIRES_WHEN_DUE, text, facts)]
    if has_expired(deadline, now):
        text = phrase("Its deadline passed at %(at)s: the next worker that polls ends it as expired.", at=at)
        return [Reason(Code.PAST_DEADLINE, text, facts)]
    text = (
        phrase("It expires unless it opens by %(at)s.", at=at)
        if opens
        else phrase("It expires unless it starts by %(at)s.", at=at)
    )
    return [Reason(Code.DEADLINE, text, facts)]


# What a blocked work waits for


#: The record of what a blocked work waits for is lost.
NO_WAITER = Reason(
    Code.NO_WAITER,
    phrase("What it waits for is lost, so it can never open: cancel it, and queue a new one."),
)


def blocked(
    waiter: Row,
    condition: Condition | None,
    open: Sequence[tuple[str, str | None]],
    missed: Sequence[tuple[str, str]],
    circle: Sequence[str],
) -> list[Reason]:
    """Return what a blocked work waits for. ``condition`` is None when the stored one cannot be read.

    ``open`` and ``missed`` are the first watched works of each kind, with their status. Of a ``circle`` each
    waits for the next, and the last for the first.
    """
    reasons = [unmet(waiter, condition, open)]
    if condition is not None and decide(condition, waiter.tally) is Decision.NEVER:
        text = phrase(
            'It can open only if works are retried, and waits for that (on_unmet="wait"); retry %(works)s.',
            works=listed([with_status(id, status) for id, status in missed], waiter.tally.missed),
        )
        reasons.append(Reason(Code.CANNOT_BE_MET, text, {"members": [id for id, _ in missed]}))
    if circle:
        text = phrase(
            "It waits for itself: %(works)s. Each of these works waits for the next: cancel one, or complete "
            "it by hand.",
            works=" → ".join([*circle, circle[0]]),
        )
        reasons.append(Reason(Code.CIRCLE, text, {"works": list(circle)}))
    if waiter.recheck:
        text = phrase(
            "It was queued while works that it waits for were ending. A worker rechecks it at its next poll."
        )
        reasons.append(Reason(Code.RECHECK, text))
    return reasons


def not_queued(ids: Sequence[str]) -> Reason:
    """Return that works for which a gate waits do not exist."""
    text = phrase(
        "It opens only once %(works)s is enqueued and has ended. If that was pruned or rolled back, cancel "
        "this gate, or complete it by hand to open it.",
        works=list(ids),
    )
    return Reason(Code.NOT_QUEUED, text, {"works": list(ids)})


def with_status(id: str, status: str | None) -> str:
    """Return an id with the status of its work, or that no work has it."""
    if status is None:
        return phrase("%(id)s (does not exist (yet))", id=id)
    return phrase("%(id)s (%(status)s)", id=id, status=word(status))


def unmet(waiter: Row, condition: Condition | None, open: Sequence[tuple[str, str | None]]) -> Reason:
    """Return the condition, the counts of the watched works, and the first that are open."""
    tally: Tally = waiter.tally
    left = tally.total - tally.done
    figures = {
        "condition": condition_text(waiter, condition),
        "succeeded": tally.succeeded,
        "missed": tally.missed,
        "open": left,
    }
    text = (
        phrase(
            "%(condition)s: %(succeeded)d succeeded, %(missed)d ended without success, %(open)d open "
            "– %(works)s.",
            works=listed([with_status(id, status) for id, status in open], left),
            **figures,
        )
        if open
        else phrase(
            "%(condition)s: %(succeeded)d succeeded, %(missed)d ended without success, %(open)d open.",
            **figures,
        )
    )
    facts = {
        "condition": waiter.condition,
        "total": tally.total,
        "succeeded": tally.succeeded,
        "missed": tally.missed,
        "open": [{"id": id, "status": status} for id, status in open],
    }
    return Reason(Code.WAITS_FOR_WORKS, text, facts)


def condition_text(waiter: Row, condition: Condition | None) -> Phrase:
    """Return which condition the work waits for, in words."""
    total: int = waiter.tally.total
    if condition is None:
        return phrases(
            "It waits for %(count)d work on a condition that cannot be read, %(condition)s",
            "It waits for %(count)d works on a condition that cannot be read, %(condition)s",
            total,
            condition=waiter.condition,
        )
    needed, counts_success = requirement(condition, total)
    if isinstance(condition, Count) and counts_success:
        return phrases(
            "It waits until %(needed)d of %(count)d work have succeeded",
            "It waits until %(needed)d of %(count)d works have succeeded",
            total,
            needed=needed,
        )
    if isinstance(condition, Count):
        return phrases(
            "It waits until %(needed)d of %(count)d work have ended",
            "It waits until %(needed)d of %(count)d works have ended",
            total,
            needed=needed,
        )
    if counts_success:
        return phrases(
            "It waits until its one work has succeeded",
            "It waits until all of its %(count)d works have succeeded",
            total,
        )
    return phrases(
        "It waits until its one work has ended", "It waits until all of its %(count)d works have ended", total
    )
