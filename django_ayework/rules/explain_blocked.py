"""What a blocked work waits for: facts in, reasons in words out."""

from __future__ import annotations

from collections.abc import Sequence

from django_ayework.rules.conditions import Condition, Count, Decision, Tally, decide, requirement
from django_ayework.rules.explain import Code, Reason, Row, word
from django_ayework.rules.formatting import Phrase, listed, phrase, phrases


def no_waiter() -> list[Reason]:
    """Return that the record of what a blocked work waits for is lost."""
    text = phrase("What it waits for is lost, so it can never open: cancel it, and queue a new one.")
    return [Reason(Code.NO_WAITER, text)]


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
