"""A work that is pending or scheduled: whom or what it waits for, and how it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django_ayework.rules.deadlines import has_expired
from django_ayework.rules.explaining.explanation import Code, Reason
from django_ayework.rules.explaining.fleet import WorkerSeen, absence, press
from django_ayework.rules.explaining.words import counted, duration, error_line, moment, sentence
from django_ayework.rules.states import Outcome
from django_ayework.rules.unknown import is_parking, unknown_since


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
