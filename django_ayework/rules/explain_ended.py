"""How a work has ended, and what to do about a dead one: facts in, reasons in words out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django_ayework.rules import states
from django_ayework.rules.explain import Code, Reason, Row, word
from django_ayework.rules.formatting import (
    Phrase,
    error_line,
    error_sentence,
    joined,
    listed,
    moment_text,
    phrase,
    phrases,
)
from django_ayework.rules.retry import WORKER_LOST


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
