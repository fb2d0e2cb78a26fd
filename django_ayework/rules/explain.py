"""Why a work is not running: facts in, reasons in words out. ``flow.explain`` reads the facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias

from django_ayework.rules.controls import Controls, command_to_resume
from django_ayework.rules.formatting import (
    Phrase,
    duration,
    error_sentence,
    is_parked,
    made,
    moment_text,
    parked_since,
    phrase,
    phrases,
)
from django_ayework.rules.notifications import DIRECT
from django_ayework.rules.retry import has_expired
from django_ayework.rules.states import Outcome, Status

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


def no_worker() -> list[Reason]:
    """Return that no worker is alive."""
    text = phrase("No worker is alive; start one with: manage.py ayework_worker")
    return [Reason(Code.NO_WORKER, text)]


def absence(queue: str, workers: Sequence[Row]) -> list[Reason]:
    """Return why no live worker takes, or takes back, a work of this queue; nothing when one does."""
    if not workers:
        return no_worker()
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


def history(
    row: Row, attempts: int, outcome: str | None, grace: timedelta, renamed: str, now: datetime
) -> list[Reason]:
    """Return why the work waits again, unless this is its first time.

    ``outcome`` is that of its last attempt, if any is known; ``renamed`` is advice on a type of another name.
    """
    if is_parked(row.error):
        since = parked_since(row.error, now)
        until = since + grace
        text = phrase(
            "Workers have claimed it since %(since)s, and none knew its type %(type)s. Start a worker with "
            "the app that defines the type. %(renamed)s Without one, it dies at %(until)s.",
            type=repr(row.type),
            since=moment_text(since, now),
            renamed=renamed,
            until=moment_text(until, now),
        )
        return [Reason(Code.PARKED, text, {"type": row.type, "since": since, "until": until})]
    if outcome == Outcome.DEFERRED:
        text = phrase("It was deferred to %(at)s; that used no attempt.", at=moment_text(row.run_at, now))
        return [Reason(Code.DEFERRED, text, {"run_at": row.run_at})]
    error = error_sentence(row.error)
    if row.attempt > 0:
        lost = outcome == Outcome.LOST
        which = {"attempt": row.attempt, "attempts": attempts}
        if lost:
            text = phrase(
                "It is tried again, because the worker that made attempt %(attempt)d of %(attempts)d was "
                "lost.",
                **which,
            )
        else:
            text = phrase(
                "It is tried again, because attempt %(attempt)d of %(attempts)d failed: %(error)s",
                error=error,
                **which,
            )
        facts = {**which, "error": row.error, "lost": lost}
        return [Reason(Code.RETRYING, text, facts)]
    if row.error or outcome:
        text = phrase("It was retried by hand. Its last error before that: %(error)s", error=error)
        return [Reason(Code.RETRIED_BY_HAND, text, {"error": row.error})]
    return []


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


def running(row: Row, seen: Row | None, attempts: int, now: datetime, gone_after: timedelta) -> list[Reason]:
    """Return which worker runs the work, and any trouble with that worker or the lease.

    ``seen`` is None when there is no trace of that worker.
    """
    until = row.leased_until
    is_direct = (row.worker or "").startswith(DIRECT)  # it has skipped the queue, and no worker has it
    worker = called(seen) if seen else row.worker or phrase("unknown")
    given = {
        "holder": holder(None if is_direct else worker, row.started_at, now),
        "attempt": row.attempt,
        "attempts": attempts,
    }
    text = (
        phrase(
            "%(holder)s, for attempt %(attempt)d of %(attempts)d, leased until %(until)s.",
            until=moment_text(until, now),
            **given,
        )
        if until
        else phrase("%(holder)s, for attempt %(attempt)d of %(attempts)d.", **given)
    )
    facts = {
        "worker": row.worker,
        "host": seen.host if seen else None,
        "pid": seen.pid if seen else None,
        "attempt": row.attempt,
        "attempts": attempts,
        "started_at": row.started_at,
        "leased_until": until,
    }
    reasons = [Reason(Code.RUNNING, text, facts)]
    if not is_direct:
        reasons += worker_trouble(row.worker, seen, now, gone_after)
    if until is not None and until < now:
        last = row.attempt >= attempts
        text = (
            phrase(
                "Its lease has lapsed: the next worker that serves its queue and type ends it as dead, for "
                "this was its last attempt."
            )
            if last
            else phrase(
                "Its lease has lapsed: the next worker that serves its queue and type takes it back to try "
                "it again."
            )
        )
        reasons.append(Reason(Code.LEASE_LAPSED, text, {"leased_until": until, "last_attempt": last}))
    return reasons


def doer_limits(type: str) -> Reason:
    """Return that workers claim as many works of a type as its doer asks for."""
    text = phrase("Its type has a doer: workers take its works only as the limits of the doer allow.")
    return Reason(Code.DOER_LIMITS, text, {"type": type})


def in_doer(type: str) -> Reason:
    """Return that a doer of the worker decides when the attempt starts."""
    text = phrase(
        "Its type has a doer, where it may wait for its turn: a doer starts works within its own limits."
    )
    return Reason(Code.IN_DOER, text, {"type": type})


def holder(worker: str | None, since: datetime | None, now: datetime) -> Phrase:
    """Return which worker has the work; without one, it is the process that enqueued it."""
    if since is None:
        if worker is None:
            return phrase("The process that enqueued it holds it")
        return phrase("Worker %(worker)s holds it", worker=worker)
    at = moment_text(since, now)
    if worker is None:
        return phrase("The process that enqueued it has held it since %(since)s", since=at)
    return phrase("Worker %(worker)s has held it since %(since)s", worker=worker, since=at)


def worker_trouble(id: str | None, seen: Row | None, now: datetime, gone_after: timedelta) -> list[Reason]:
    """Return the trouble of the worker, if it has any."""
    if seen is None:
        text = phrase(
            "There is no trace of that worker; while its lease lasts, no other worker takes the work."
        )
        return [Reason(Code.WORKER_UNKNOWN, text, {"worker": id})]
    if seen.stopped_at is not None:
        text = phrase("That worker stopped at %(at)s.", at=moment_text(seen.stopped_at, now))
        return [Reason(Code.WORKER_STOPPED, text, {"stopped_at": seen.stopped_at})]
    if now - seen.seen_at > gone_after:
        text = phrase("That worker was last seen at %(at)s.", at=moment_text(seen.seen_at, now))
        return [Reason(Code.WORKER_SILENT, text, {"seen_at": seen.seen_at})]
    return []
