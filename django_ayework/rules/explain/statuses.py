"""Why a work is not running, by its status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_ayework.rules import states
from django_ayework.rules.conditions import Condition, Count, Decision, Tally, decide
from django_ayework.rules.decisions import has_expired, is_parking, unknown_since
from django_ayework.rules.explain.reasons import (
    Code,
    Reason,
    WorkerSeen,
    absence,
    counted,
    duration,
    ended,
    error_line,
    listed,
    moment,
    press,
    sentence,
)
from django_ayework.rules.notifications import DIRECT
from django_ayework.rules.states import Outcome, Status

# --- blocked ---
# A work that waits for other works.

#: How an id stands that no work has.
UNBORN = "does not exist (yet)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What a waiter waits for; ``open`` and ``missed`` are the first watched ids of each, with their status.

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
    return [unmet(wait), *stuck(wait), *second_look(wait)]


def unmet(wait: Wait) -> Reason:
    """Return the condition, how the watched works stand, and the first that are open."""
    tally = wait.tally
    left = tally.total - tally.done
    text = (
        f"It waits {condition_text(wait)}: {tally.succeeded} succeeded, "
        f"{tally.missed} ended without success, {left} open"
    )
    if wait.open:
        named = [f"{id} ({status or UNBORN})" for id, status in wait.open]
        text += f" – {listed(named, left)}"
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
    total = wait.tally.total
    if wait.condition is None:
        return f"for {counted(total, 'work')} on a condition that cannot be read, {wait.stored}"
    if isinstance(wait.condition, Count):
        ends = "succeeded" if wait.condition.of == "success" else "ended"
        return f"until {wait.condition.n} of {counted(total, 'work')} have {ends}"
    ends = "succeeded" if wait.condition == "all-success" else "ended"
    return f"until its one work has {ends}" if total == 1 else f"until all of its {total} works have {ends}"


def stuck(wait: Wait) -> list[Reason]:
    """Return that waiting alone will not do, if so: a gate told to wait on (``on_unmet="wait"``)."""
    if wait.condition is None or decide(wait.condition, wait.tally) is not Decision.NEVER:
        return []
    ids = [id for id, _ in wait.missed]
    named = listed([f"{id} ({status})" for id, status in wait.missed], wait.tally.missed)
    text = f'It can open only if works are retried, and waits for that (on_unmet="wait"); retry {named}.'
    return [Reason(Code.CANNOT_BE_MET, text, {"members": ids})]


def second_look(wait: Wait) -> list[Reason]:
    """Return that somebody must look again, if so."""
    if not wait.recheck:
        return []
    text = (
        "It was queued while works that it watches could end, so a worker looks at it once more at its next "
        "look."
    )
    return [Reason(Code.SECOND_LOOK, text)]


# --- ended ---
# A work that has ended: how, when, by whom, and what can be done about it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a work ended. ``by`` is who ended it, ``members`` the watched works that a dead gate missed.

    Each member comes with how it counts for the gate, and its status (None when no work has this id).
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

    @property
    def facts(self) -> dict[str, object]:
        """What every ended work tells."""
        return {"ended_at": self.ended_at, "by": self.by}


def over(ending: Ending, now: datetime) -> list[Reason]:
    """Return how a work ended."""
    when = ended(ending.ended_at, now)
    if ending.status is Status.SUCCESS:
        return [Reason(Code.SUCCEEDED, succeeded(ending, when), ending.facts)]
    if ending.status is Status.CANCELLED:
        text = f"It was cancelled by hand{when}; retry it to run it after all."
        return [Reason(Code.CANCELLED, text, ending.facts)]
    return [dead(ending, when)]


def succeeded(ending: Ending, when: str) -> str:
    """Return the words of a success."""
    if ending.is_gate:
        return f"It opened{when}, and queued the works it held."
    if ending.by is None:
        return f"It was completed by hand{when}."
    return f"It succeeded{when}, run by worker {ending.by}."


def dead(ending: Ending, when: str) -> Reason:
    """Return why the work is dead, and what to do."""
    facts = {**ending.facts, "error": ending.error}
    if ending.reason == states.Reason.UNSATISFIABLE:
        members = [{"id": id, "outcome": outcome, "status": now} for id, outcome, now in ending.members]
        return Reason(Code.UNSATISFIABLE, unsatisfiable(ending, when), {**facts, "members": members})
    says = DEATHS.get(ending.reason)
    if says is None:
        text = f"It died{when}: {error_line(ending.error)}"
        return Reason(Code.DIED, sentence(text), {**facts, "reason": ending.reason})
    why, remedy = UNREADABLE_GATE if ending.is_gate and ending.reason == states.Reason.BAD_INPUT else says
    attempts = counted(ending.attempt, "attempt")
    why = why.format(attempts=attempts, type=repr(ending.type), error=error_line(ending.error))
    remedy = remedy.format(renamed=ending.if_renamed)
    return Reason(Code(ending.reason), f"It died{when}: {sentence(why)} {remedy}", facts)


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


def unsatisfiable(ending: Ending, when: str) -> str:
    """Return which members a gate missed, and what to do about those."""
    text = f"It died{when}: what it waits for can no longer happen"
    if not ending.members:
        return f"{text}. Retry it once what it watches may succeed."
    named = [f"{id} is {outcome}" for id, outcome, _ in ending.members]
    text = f"{text}, as {listed(named, ending.missed)}."
    retryable = [id for id, _, status in ending.members if status in states.RETRYABLE]
    unborn = [id for id, _, status in ending.members if status is None]
    if retryable:
        text += f" Retry {', '.join(retryable)}, and it waits again."
    if unborn:
        text += f" {', '.join(unborn)} {UNBORN}: retry what kept the gate that holds it from opening;"
        text += " if it was deleted, queue this one anew."
    if not retryable and not unborn:
        text += " These have moved on since: retry it."
    return text


# --- running ---
# A work that a worker holds.


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Who holds a work; ``seen`` is None when there is no trace of that worker."""

    worker: str | None
    seen: WorkerSeen | None
    attempt: int
    attempts: int
    started_at: datetime | None
    leased_until: datetime | None

    @property
    def is_direct(self) -> bool:
        """Whether the work has skipped the queue, and no worker has it."""
        return (self.worker or "").startswith(DIRECT)


def running(hold: Hold, now: datetime, gone_after: timedelta) -> list[Reason]:
    """Return who runs the work, and whether it still does."""
    return [held(hold, now), *life(hold, now, gone_after), *lapse(hold, now)]


def held(hold: Hold, now: datetime) -> Reason:
    """Return who runs it since when."""
    who = (
        "The process that enqueued it"
        if hold.is_direct
        else f"Worker {hold.seen or hold.worker or 'unknown'}"
    )
    since = f" since {moment(hold.started_at, now)}" if hold.started_at else ""
    lease = f", leased until {moment(hold.leased_until, now)}" if hold.leased_until else ""
    text = f"{who} has it{since}, for attempt {hold.attempt} of {hold.attempts}{lease}."
    facts = {
        "worker": hold.worker,
        "host": hold.seen.host if hold.seen else None,
        "pid": hold.seen.pid if hold.seen else None,
        "attempt": hold.attempt,
        "attempts": hold.attempts,
        "started_at": hold.started_at,
        "leased_until": hold.leased_until,
    }
    return Reason(Code.RUNNING, text, facts)


def life(hold: Hold, now: datetime, gone_after: timedelta) -> list[Reason]:
    """Return what is wrong with the worker, if anything is."""
    seen = hold.seen
    if hold.is_direct:
        return []
    if seen is None:
        text = "There is no trace of that worker; while its lease lasts, nobody else takes the work."
        return [Reason(Code.WORKER_UNKNOWN, text, {"worker": hold.worker})]
    if seen.stopped_at is not None:
        text = f"That worker stopped at {moment(seen.stopped_at, now)}."
        return [Reason(Code.WORKER_STOPPED, text, {"stopped_at": seen.stopped_at})]
    if now - seen.seen_at > gone_after:
        text = f"That worker was last seen at {moment(seen.seen_at, now)}."
        return [Reason(Code.WORKER_SILENT, text, {"seen_at": seen.seen_at})]
    return []


def lapse(hold: Hold, now: datetime) -> list[Reason]:
    """Return that the lease has lapsed, if so, and what comes of it."""
    if hold.leased_until is None or hold.leased_until >= now:
        return []
    spent = hold.attempt >= hold.attempts
    fate = "ends it as dead, for this was its last attempt" if spent else "takes it back to try it again"
    text = f"Its lease has lapsed: the next worker that serves its queue and type {fate}."
    return [Reason(Code.LEASE_LAPSED, text, {"leased_until": hold.leased_until, "last_attempt": spent})]


# --- waiting ---
# A work that is pending or scheduled: whom or what it waits for, and how it came to.


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a waiting work has behind it; ``outcome`` is that of its last attempt, if any is known."""

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
    held = [*press(queue, workers), *behind(queue, ahead, most)]
    return held or [next_up(poll)]


def behind(queue: str, ahead: int, most: int) -> list[Reason]:
    """Return how many works go first, if any do."""
    if not ahead:
        return []
    works = f"More than {counted(most, 'work')}" if ahead > most else counted(ahead, "work")
    verb = "is" if ahead == 1 else "are"
    text = f"{works} {verb} ahead of it in its queue {queue!r}: of higher priority, or due for longer."
    facts = {"queue": queue, "ahead": min(ahead, most), "more": ahead > most}
    return [Reason(Code.BEHIND_OTHERS, text, facts)]


def next_up(poll: timedelta) -> Reason:
    """Return that nothing holds the work back; idle workers look once per ``poll``."""
    text = f"It is next: a worker will take it at its next look, within {duration(poll.total_seconds())}."
    return Reason(Code.NEXT, text, {"poll_interval": poll.total_seconds()})


def scheduled(
    run_at: datetime, now: datetime, queue: str, workers: Sequence[WorkerSeen] | None
) -> list[Reason]:
    """Return that the work waits for its moment. ``workers`` are asked for once that has come."""
    facts = {"run_at": run_at, "seconds": (run_at - now).total_seconds()}
    if run_at > now:
        return [Reason(Code.NOT_DUE, f"It is due at {moment(run_at, now)}.", facts)]
    text = f"It was due at {moment(run_at, now)}; a worker makes it pending at its next look."
    return [Reason(Code.DUE, text, facts), *absence(queue, workers or ())]


def history(past: Past, now: datetime) -> list[Reason]:
    """Return how the work came to wait, unless this is its first time."""
    if is_parking(past.error):
        return [parked(past, now)]
    if past.outcome == Outcome.DEFERRED:
        text = f"Its handler deferred it to {moment(past.run_at, now)}; that used no attempt."
        return [Reason(Code.DEFERRED, text, {"run_at": past.run_at})]
    if past.attempt > 0:
        return [retrying(past)]
    if past.error or past.outcome:
        text = sentence(f"It was retried by hand; before that it met: {error_line(past.error)}")
        return [Reason(Code.RETRIED_BY_HAND, text, {"error": past.error})]
    return []


def retrying(past: Past) -> Reason:
    """Return that the last attempt failed."""
    which = f"attempt {past.attempt} of {past.attempts}"
    if past.outcome == Outcome.LOST:
        text = f"It is tried again, because the worker that made {which} was lost."
    else:
        text = sentence(f"It is tried again, because {which} failed: {error_line(past.error)}")
    facts = {"attempt": past.attempt, "attempts": past.attempts, "error": past.error}
    return Reason(Code.RETRYING, text, {**facts, "lost": past.outcome == Outcome.LOST})


def parked(past: Past, now: datetime) -> Reason:
    """Return that nobody who took the work knew its type."""
    since = unknown_since(past.error, now)
    until = since + past.grace
    text = (
        f"No worker that took it has known its type {past.type!r} since {moment(since, now)}: start one that "
        f"has the app which defines it. {past.if_renamed} It dies when none does until {moment(until, now)}."
    )
    return Reason(Code.PARKED, text, {"type": past.type, "since": since, "until": until})


def bound(deadline: datetime | None, now: datetime, act: str) -> list[Reason]:
    """Return by when the work must ``act`` (say, "start"), if it has a deadline."""
    if deadline is None:
        return []
    facts = {"deadline": deadline}
    if has_expired(deadline, now):
        text = f"Its deadline passed at {moment(deadline, now)}: the next worker to look ends it as expired."
        return [Reason(Code.PAST_DEADLINE, text, facts)]
    text = f"It expires unless it {act}s by {moment(deadline, now)}."
    return [Reason(Code.DEADLINE, text, facts)]
