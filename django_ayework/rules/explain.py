"""Why a work is not running: facts in, reasons in words out. ``flow.explain`` reads the facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_ayework.rules import states
from django_ayework.rules.conditions import Condition, Count, Decision, Tally, decide
from django_ayework.rules.notifications import DIRECT
from django_ayework.rules.reasons import Code, Reason, WorkerSeen, absence, busy
from django_ayework.rules.retry import has_expired
from django_ayework.rules.states import Outcome, Status
from django_ayework.rules.texts import (
    counted,
    duration,
    error_line,
    is_parked,
    listed,
    moment_text,
    parked_since,
    sentence,
)

#: Stands after an id that no work has.
MISSING = "does not exist (yet)"


# Pending and scheduled works.


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The history of a waiting work; ``outcome`` is that of its last attempt, if any is known."""

    type: str
    attempt: int
    attempts: int
    error: str
    outcome: str | None
    run_at: datetime
    grace: timedelta
    if_renamed: str  # what to do when its type has another name now


def pending(
    queue: str, workers: Sequence[WorkerSeen], ahead: int, most: int, poll: timedelta
) -> list[Reason]:
    """Return why a due work is not taken; ``ahead`` above ``most`` means more than that."""
    if missing := absence(queue, workers):
        return missing
    reasons = busy(queue, workers)
    if ahead:
        works = f"More than {counted(most, 'work')}" if ahead > most else counted(ahead, "work")
        verb = "is" if ahead == 1 else "are"
        text = f"{works} {verb} ahead of it in its queue {queue!r}: of higher priority, or due for longer."
        facts = {"queue": queue, "ahead": min(ahead, most), "more": ahead > most}
        reasons.append(Reason(Code.BEHIND_OTHERS, text, facts))
    if not reasons:
        interval = poll.total_seconds()
        text = f"It is next: a worker will take it at its next poll, within {duration(interval)}."
        reasons.append(Reason(Code.NEXT, text, {"poll_interval": interval}))
    return reasons


def scheduled(
    run_at: datetime, now: datetime, queue: str, workers: Sequence[WorkerSeen] | None
) -> list[Reason]:
    """Return that the work waits for its moment. ``workers`` are needed once that has come."""
    facts = {"run_at": run_at, "seconds": (run_at - now).total_seconds()}
    if run_at > now:
        return [Reason(Code.NOT_DUE, f"It is due at {moment_text(run_at, now)}.", facts)]
    text = f"It was due at {moment_text(run_at, now)}; a worker makes it pending at its next poll."
    return [Reason(Code.DUE, text, facts), *absence(queue, workers or ())]


def history(past: Past, now: datetime) -> list[Reason]:
    """Return why the work waits again, unless this is its first time."""
    if is_parked(past.error):
        since = parked_since(past.error, now)
        until = since + past.grace
        text = (
            f"No worker that took it has known its type {past.type!r} since {moment_text(since, now)}: start "
            f"one that has the app which defines it. {past.if_renamed} It dies when none does until "
            f"{moment_text(until, now)}."
        )
        return [Reason(Code.PARKED, text, {"type": past.type, "since": since, "until": until})]
    if past.outcome == Outcome.DEFERRED:
        text = f"Its handler deferred it to {moment_text(past.run_at, now)}; that used no attempt."
        return [Reason(Code.DEFERRED, text, {"run_at": past.run_at})]
    error = error_line(past.error)
    if past.attempt > 0:
        which = f"attempt {past.attempt} of {past.attempts}"
        lost = past.outcome == Outcome.LOST
        why = f"the worker that made {which} was lost" if lost else f"{which} failed: {error}"
        facts = {"attempt": past.attempt, "attempts": past.attempts, "error": past.error, "lost": lost}
        return [Reason(Code.RETRYING, sentence(f"It is tried again, because {why}"), facts)]
    if past.error or past.outcome:
        text = sentence(f"It was retried by hand; before that it met: {error}")
        return [Reason(Code.RETRIED_BY_HAND, text, {"error": past.error})]
    return []


def bound(deadline: datetime | None, now: datetime, act: str) -> list[Reason]:
    """Return by when the work must ``act`` (say, "start"), if it has a deadline."""
    if deadline is None:
        return []
    facts = {"deadline": deadline}
    at = moment_text(deadline, now)
    if has_expired(deadline, now):
        text = f"Its deadline passed at {at}: the next worker that polls ends it as expired."
        return [Reason(Code.PAST_DEADLINE, text, facts)]
    return [Reason(Code.DEADLINE, f"It expires unless it {act}s by {at}.", facts)]


# Blocked works.


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The works that a waiter waits for; ``open`` and ``missed`` are the first of each, with their status.

    ``condition`` is None when the stored one, ``stored``, cannot be read.
    """

    condition: Condition | None
    stored: str
    tally: Tally
    open: Sequence[tuple[str, str | None]]
    missed: Sequence[tuple[str, str]]
    recheck: bool


def blocked(wait: Wait | None) -> list[Reason]:
    """Return what a blocked work waits for."""
    if wait is None:
        text = "What it waits for is lost, so it can never open: cancel it, and queue a new one."
        return [Reason(Code.NO_WAITER, text)]
    reasons = [unmet(wait)]
    if wait.condition is not None and decide(wait.condition, wait.tally) is Decision.NEVER:
        named = listed([f"{id} ({status})" for id, status in wait.missed], wait.tally.missed)
        text = f'It can open only if works are retried, and waits for that (on_unmet="wait"); retry {named}.'
        reasons.append(Reason(Code.CANNOT_BE_MET, text, {"members": [id for id, _ in wait.missed]}))
    if wait.recheck:
        text = "It was queued while works that it watches could end: a worker rechecks it at its next poll."
        reasons.append(Reason(Code.RECHECK, text))
    return reasons


def unmet(wait: Wait) -> Reason:
    """Return the condition, the counts of the watched works, and the first that are open."""
    tally = wait.tally
    left = tally.total - tally.done
    text = (
        f"It waits {condition_text(wait)}: {tally.succeeded} succeeded, "
        f"{tally.missed} ended without success, {left} open"
    )
    if wait.open:
        text += f" – {listed([f'{id} ({status or MISSING})' for id, status in wait.open], left)}"
    facts = {
        "condition": wait.stored,
        "total": tally.total,
        "succeeded": tally.succeeded,
        "missed": tally.missed,
        "open": [{"id": id, "status": status} for id, status in wait.open],
    }
    return Reason(Code.WAITS_FOR_WORKS, f"{text}.", facts)


def condition_text(wait: Wait) -> str:
    """Return a condition in words."""
    total, condition = wait.tally.total, wait.condition
    if condition is None:
        return f"for {counted(total, 'work')} on a condition that cannot be read, {wait.stored}"
    if isinstance(condition, Count):
        ends = "succeeded" if condition.of == "success" else "ended"
        return f"until {condition.n} of {counted(total, 'work')} have {ends}"
    ends = "succeeded" if condition == "all-success" else "ended"
    return f"until its one work has {ends}" if total == 1 else f"until all of its {total} works have {ends}"


# Running works.


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The holder of a running work; ``seen`` is None when there is no trace of that worker."""

    worker: str | None
    seen: WorkerSeen | None
    attempt: int
    attempts: int
    started_at: datetime | None
    leased_until: datetime | None


def running(hold: Hold, now: datetime, gone_after: timedelta) -> list[Reason]:
    """Return which worker runs the work, and what is wrong with that worker or the lease, if anything is."""
    seen, until = hold.seen, hold.leased_until
    is_direct = (hold.worker or "").startswith(DIRECT)  # it has skipped the queue, and no worker has it
    holder = "The process that enqueued it" if is_direct else f"Worker {seen or hold.worker or 'unknown'}"
    since = f" since {moment_text(hold.started_at, now)}" if hold.started_at else ""
    lease = f", leased until {moment_text(until, now)}" if until else ""
    text = f"{holder} has it{since}, for attempt {hold.attempt} of {hold.attempts}{lease}."
    facts = {
        "worker": hold.worker,
        "host": seen.host if seen else None,
        "pid": seen.pid if seen else None,
        "attempt": hold.attempt,
        "attempts": hold.attempts,
        "started_at": hold.started_at,
        "leased_until": until,
    }
    reasons = [Reason(Code.RUNNING, text, facts)]
    if not is_direct:
        reasons += worker_trouble(hold.worker, seen, now, gone_after)
    if until is not None and until < now:
        last = hold.attempt >= hold.attempts
        act = "ends it as dead, for this was its last attempt" if last else "takes it back to try it again"
        text = f"Its lease has lapsed: the next worker that serves its queue and type {act}."
        reasons.append(Reason(Code.LEASE_LAPSED, text, {"leased_until": until, "last_attempt": last}))
    return reasons


def worker_trouble(
    id: str | None, seen: WorkerSeen | None, now: datetime, gone_after: timedelta
) -> list[Reason]:
    """Return what is wrong with the worker, if anything is."""
    if seen is None:
        text = "There is no trace of that worker; while its lease lasts, no other worker takes the work."
        return [Reason(Code.WORKER_UNKNOWN, text, {"worker": id})]
    if seen.stopped_at is not None:
        text = f"That worker stopped at {moment_text(seen.stopped_at, now)}."
        return [Reason(Code.WORKER_STOPPED, text, {"stopped_at": seen.stopped_at})]
    if now - seen.seen_at > gone_after:
        text = f"That worker was last seen at {moment_text(seen.seen_at, now)}."
        return [Reason(Code.WORKER_SILENT, text, {"seen_at": seen.seen_at})]
    return []


# Ended works.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a work ended. ``by`` is the worker that ended it; ``members`` are works that a dead gate missed.

    Each member has its id, its outcome for the gate, and its status now (None when no work has this id).
    """

    status: Status
    reason: str
    type: str
    is_gate: bool
    ended_at: datetime | None
    by: str | None
    error: str
    attempt: int
    members: Sequence[tuple[str, str, str | None]] = ()
    missed: int = 0
    if_renamed: str = ""  # what to do when its type has another name now


#: Why a work is dead, and what to do, by its reason. The placeholders are filled in by ``dead``.
DEATHS: dict[str, tuple[str, str]] = {
    states.Reason.EXHAUSTED: (
        "its budget ended with {attempts}, the last one failed: {error}",
        "Mend the cause, then retry it.",
    ),
    states.Reason.ABORTED: (
        "its handler or on_failure gave up: {error}",
        "Mend the cause, then retry it.",
    ),
    states.Reason.EXPIRED: (
        "it was past its deadline: {error}",
        "Retry it if it is still wanted; expires counts anew, an explicit deadline stays.",
    ),
    states.Reason.UNKNOWN_TYPE: (
        "no worker knew its type {type} for long enough",
        "Install the app that defines it and restart the workers, then retry it. {renamed}",
    ),
    states.Reason.BAD_INPUT: (
        "its stored input cannot be read, or does not fit its handler: {error}",
        "Mend the handler, or retry it with an input that fits.",
    ),
}

#: The same for a gate, whose input cannot be given anew.
UNREADABLE_GATE = (
    "the works it holds cannot be queued: {error}",
    "Mend the cause, then retry it; or queue those works by hand.",
)


def ended(ending: Ending, now: datetime) -> list[Reason]:
    """Return how a work ended, and what can be done about it."""
    when = "" if ending.ended_at is None else f" at {moment_text(ending.ended_at, now)}"
    facts = {"ended_at": ending.ended_at, "by": ending.by}
    if ending.status is Status.CANCELLED:
        text = f"It was cancelled by hand{when}; retry it to run it after all."
        return [Reason(Code.CANCELLED, text, facts)]
    if ending.status is not Status.SUCCESS:
        return [dead(ending, when, {**facts, "error": ending.error})]
    if ending.is_gate:
        text = f"It opened{when}, and queued the works it held."
    elif ending.by is None:
        text = f"It was completed by hand{when}."
    else:
        text = f"It succeeded{when}, run by worker {ending.by}."
    return [Reason(Code.SUCCEEDED, text, facts)]


def dead(ending: Ending, when: str, facts: dict[str, Any]) -> Reason:
    """Return why the work is dead, and what to do."""
    if ending.reason == states.Reason.UNSATISFIABLE:
        members = [{"id": id, "outcome": outcome, "status": now} for id, outcome, now in ending.members]
        return Reason(Code.UNSATISFIABLE, unsatisfiable(ending, when), {**facts, "members": members})
    error = error_line(ending.error)
    if ending.reason not in DEATHS:
        return Reason(Code.DIED, sentence(f"It died{when}: {error}"), {**facts, "reason": ending.reason})
    is_unreadable_gate = ending.is_gate and ending.reason == states.Reason.BAD_INPUT
    why, remedy = UNREADABLE_GATE if is_unreadable_gate else DEATHS[ending.reason]
    why = why.format(attempts=counted(ending.attempt, "attempt"), type=repr(ending.type), error=error)
    remedy = remedy.format(renamed=ending.if_renamed)
    return Reason(Code(ending.reason), f"It died{when}: {sentence(why)} {remedy}", facts)


def unsatisfiable(ending: Ending, when: str) -> str:
    """Return which members a gate missed, and what to do about those."""
    text = f"It died{when}: what it waits for can no longer happen"
    if not ending.members:
        return f"{text}. Retry it once what it watches may succeed."
    named = [f"{id} is {outcome}" for id, outcome, _ in ending.members]
    text = f"{text}, as {listed(named, ending.missed)}."
    retryable = [id for id, _, status in ending.members if status in states.RETRYABLE]
    missing = [id for id, _, status in ending.members if status is None]
    if retryable:
        text += f" Retry {', '.join(retryable)}, and it waits again."
    if missing:
        text += f" {', '.join(missing)} {MISSING}: retry what kept the gate that holds it from opening;"
        text += " if it was deleted, queue this one anew."
    if not retryable and not missing:
        text += " These have moved on since: retry it."
    return text
