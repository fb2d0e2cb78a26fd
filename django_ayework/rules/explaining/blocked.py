"""A work that waits for other works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django_ayework.rules.conditions import Condition, Count, Decision, Tally, decide
from django_ayework.rules.explaining.explanation import Code, Reason
from django_ayework.rules.explaining.words import counted, listed

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
