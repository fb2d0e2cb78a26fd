"""How a work runs, how it ended, and what became of its attempts before: facts in, reasons in words out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django_ayework.rules import states
from django_ayework.rules.explain import Code, Reason, Row, called, word
from django_ayework.rules.formatting import (
    Phrase,
    error_line,
    error_sentence,
    is_parked,
    joined,
    listed,
    moment_text,
    parked_since,
    phrase,
    phrases,
)
from django_ayework.rules.notifications import DIRECT
from django_ayework.rules.retry import WORKER_LOST
from django_ayework.rules.states import Outcome

# Works that run, or wait again


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


# Works that have ended


def cancelled(row: Row, by: str | None, now: datetime) -> list[Reason]:
    """Return that a work was cancelled. ``by`` is None, or the worker that ended it."""
    at = moment_text(row.ended_at, now)
    text = phrase("It was cancelled by hand at %(at)s; retry it to run it after all.", at=at)
    return [Reason(Code.CANCELLED, text, {"ended_at": row.ended_at, "by": by})]


def succeeded(row: Row, is_gate: bool, by: str | None, now: datetime) -> list[Reason]:
    """Return that a work has succeeded. ``by`` is the worker that ran it, None for an act by hand."""
    text = success(is_gate, by, moment_text(row.ended_at, now))
    return [Reason(Code.SUCCEEDED, text, {"ended_at": row.ended_at, "by": by})]


def success(is_gate: bool, by: str | None, at: str) -> Phrase:
    """Return in a sentence how a work succeeded, and when."""
    if is_gate:
        return phrase("It opened at %(at)s, and queued the works it held.", at=at)
    if by is None:
        return phrase("It was completed by hand at %(at)s.", at=at)
    return phrase("It succeeded at %(at)s, run by worker %(by)s.", at=at, by=by)


def dead(row: Row, is_gate: bool, by: str | None, renamed: str, now: datetime) -> list[Reason]:
    """Return why a work is dead, and what to do, unless a gate could no longer open."""
    error = error_sentence(row.error)
    facts = {"ended_at": row.ended_at, "by": by, "error": row.error}
    given = {"died": died(row, now), "error": error}
    if is_gate and row.reason == states.Reason.BAD_INPUT:
        text = phrase(
            "%(died)s: the works it holds cannot be queued: %(error)s Mend the cause, then retry it; or "
            "queue those works by hand.",
            **given,
        )
    elif row.reason == states.Reason.EXHAUSTED and error_line(row.error) == WORKER_LOST:
        text = phrase(
            "%(died)s: the worker of its last attempt was lost, so its effects may have happened. Check them "
            "before you retry it.",
            died=given["died"],
        )
    elif row.reason == states.Reason.EXHAUSTED:
        text = phrases(
            "%(died)s after %(count)d attempt, which failed: %(error)s Mend the cause, then retry it.",
            "%(died)s after %(count)d attempts. The last one failed: %(error)s Mend the cause, then retry "
            "it.",
            row.attempt,
            **given,
        )
    elif row.reason == states.Reason.UNKNOWN_TYPE:
        text = phrase(
            "%(died)s: no worker knew its type %(type)s for long enough. Install the app that defines it and "
            "restart the workers, then retry it. %(renamed)s",
            died=given["died"],
            type=repr(row.type),
            renamed=renamed,
        )
    elif row.reason == states.Reason.ABORTED:
        text = phrase(
            "%(died)s: its handler or on_failure gave up: %(error)s Mend the cause, then retry it.", **given
        )
    elif row.reason == states.Reason.EXPIRED:
        late = phrase(
            "%(died)s: it was past its deadline: %(error)s Retry it if it is still wanted.", **given
        )
        anew = phrase("A retry starts expires anew; an explicit deadline stays.")
        if is_gate:
            anew = phrase("A retry starts its timeout or expires anew; an explicit deadline stays.")
        text = joined([late, anew])
    elif row.reason == states.Reason.BAD_INPUT:
        text = phrase(
            "%(died)s: its stored input cannot be read, or does not fit its handler: %(error)s Mend the "
            "handler, or retry it with an input that fits.",
            **given,
        )
    else:
        text = phrase("%(died)s: %(error)s", **given)
        return [Reason(Code.DIED, text, {**facts, "reason": row.reason})]
    return [Reason(Code(row.reason), text, facts)]


def died(row: Row, now: datetime) -> Phrase:
    """Return when a work died."""
    return phrase("It died at %(at)s", at=moment_text(row.ended_at, now))


def unsatisfiable(
    row: Row, by: str | None, members: Sequence[tuple[str, str, str | None]], missed: int, now: datetime
) -> list[Reason]:
    """Return which members a dead gate missed, and what to do about those.

    ``members`` are the first of the ``missed`` ones: the id, the outcome for the gate, and the status now,
    None when no work has this id.
    """
    listing = [{"id": id, "outcome": outcome, "status": status} for id, outcome, status in members]
    facts = {"ended_at": row.ended_at, "by": by, "error": row.error, "members": listing}
    if not members:
        text = phrase(
            "%(died)s: its condition can no longer be met. Retry it once its watched works may succeed.",
            died=died(row, now),
        )
        return [Reason(Code.UNSATISFIABLE, text, facts)]
    named = [phrase("%(id)s is %(outcome)s", id=id, outcome=word(outcome)) for id, outcome, _ in members]
    sentences = [
        phrase(
            "%(died)s: its condition can no longer be met, as %(works)s.",
            died=died(row, now),
            works=listed(named, missed),
        ),
        *remedies(members),
    ]
    return [Reason(Code.UNSATISFIABLE, joined(sentences), facts)]


def remedies(members: Sequence[tuple[str, str, str | None]]) -> list[Phrase]:
    """Return what to do about the members that a gate missed."""
    retryable = [id for id, _, status in members if status in states.RETRYABLE]
    missing = [id for id, _, status in members if status is None]
    found = []
    if retryable:
        found.append(phrase("Retry %(works)s, and it waits again.", works=retryable))
    if missing:
        text = phrase(
            "%(works)s does not exist (yet): retry the works that keep its gate from opening. If it was "
            "deleted, queue this work again.",
            works=missing,
        )
        found.append(text)
    return found or [phrase("These works have changed since: retry this one.")]
