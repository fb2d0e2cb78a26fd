"""What a rate-limited doer counts before it starts a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from django_ayework.doers import seams
from django_ayework.doers.held import Held
from django_ayework.doers.limiter import Limiter
from django_ayework.doers.protocol import Hints
from django_ayework.rules.rates import Denied, Name, Verdict

#: What is counted together: one name for all tasks, or a function that names it.
Key: TypeAlias = str | Callable[[Hints], str]
#: Whom a round has found beyond its limit, and the seconds until it is not.
Waits: TypeAlias = dict[Name, float]

DEFAULT_KEY = "doer"


class Limits:
    """The counts of one doer: those of its keys, and those of the fairness labels if they are limited."""

    def __init__(self, overall: Limiter, per_label: Limiter | None, key: Key | None) -> None:
        self._overall = overall
        self._per_label = per_label
        self._key: Key = DEFAULT_KEY if key is None else key
        #: Labels are counted apart for each doer that has a key of its own.
        self._scope = self._key if isinstance(self._key, str) else DEFAULT_KEY

    def key_of(self, held: Held) -> str:
        """Return the key a task counts for; a function that raises is reported, and loses no task."""
        if isinstance(self._key, str):
            return self._key
        try:
            return str(self._key(held.hints))
        except Exception as error:
            seams.report(error, "the key function of a rate-limited doer raised")
            return DEFAULT_KEY

    def allow(self, held: Held, waits: Waits) -> bool:
        """Count the start of a task if every limit allows it; return whether it may start.

        Who is beyond a limit is noted, and not asked again in this round. The key is looked at before its
        label is hit, so that a label does not pay for a start that does not follow.
        """
        key, label = ("key", held.key), ("label", self._scope, held.fairness)
        if key in waits or label in waits:
            return False
        if self._per_label is None:
            return noted(self._overall.hit(key), key, waits)
        return (
            noted(self._overall.peek(key), key, waits)
            and noted(self._per_label.hit(label), label, waits)
            and noted(self._overall.hit(key), key, waits)
        )


def noted(verdict: Verdict, name: Name, waits: Waits) -> bool:
    """Return whether a verdict allows, having noted one that does not."""
    if isinstance(verdict, Denied):
        waits[name] = verdict.retry_after
    return bool(verdict)
