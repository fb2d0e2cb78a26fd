"""A work that has ended: how, when, by whom, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django_ayework.rules import states
from django_ayework.rules.explaining.blocked import UNBORN
from django_ayework.rules.explaining.explanation import Code, Reason
from django_ayework.rules.explaining.words import counted, ended, error_line, listed, sentence
from django_ayework.rules.states import Status


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
