"""The controls of types and queues at run time, the division of a claim among types, the turns of labels."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple, Protocol

DEFAULT_WEIGHT = 20


def command_to_resume(scope: str, name: str) -> str:
    """Return the command that resumes a type or a queue.

    >>> command_to_resume("queue", "mail")
    'manage.py ayework_resume --queue mail'
    """
    return f"manage.py ayework_resume --{scope} {shlex.quote(name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeControl:
    """How a type is served. Limits of 0 are none; ``interval`` is in seconds, None if not continuous."""

    paused: bool = False
    priority: int = 0
    weight: int = DEFAULT_WEIGHT
    max_running: int = 0
    max_claimed: int = 0
    interval: float | None = None

    @property
    def is_ranked(self) -> bool:
        """Whether the type has a place of its own among those of its queue."""
        return self.priority != 0 or self.weight != DEFAULT_WEIGHT


UNCONTROLLED = TypeControl()


@dataclass(frozen=True, slots=True)
class Controls:
    """The controls of every type and queue that has any."""

    types: Mapping[str, TypeControl] = field(default_factory=dict)
    paused_queues: frozenset[str] = frozenset()

    def of(self, type: str) -> TypeControl:
        """Return the control of a type."""
        return self.types.get(type, UNCONTROLLED)

    def permits(self, queue: str, type: str) -> bool:
        """Tell whether neither the queue nor the type is paused."""
        return queue not in self.paused_queues and not self.of(type).paused


class Candidate(Protocol):
    """A candidate for free slots, which are divided in proportion to ``weight``."""

    @property
    def name(self) -> str:
        """The name of the candidate."""
        ...

    @property
    def weight(self) -> float:
        """Its share relative to the others'; 0 or less excludes it."""
        ...

    @property
    def pending(self) -> int:
        """How much of it is being done right now."""
        ...

    @property
    def priority(self) -> float:
        """Only those of the highest priority have a chance."""
        ...


def weights(candidates: Iterable[Candidate]) -> list[float]:
    """Return how much each candidate deserves to be next, in order; 0 for those that must not be.

    Choose one with the probability score / sum of scores. Candidates of a weight of 0 or less are dropped,
    then all but those of the highest priority. The scores of the rest are
    ``weight·(total pending + 1) − total weight·pending``, so who has more than its share waits until the
    others have caught up. Unless everybody was dropped, at least one score is above 0.

    >>> from types import SimpleNamespace as Type
    >>> weights([Type(name="mail", weight=1, pending=0, priority=0),
    ...          Type(name="video", weight=10, pending=2, priority=0),
    ...          Type(name="chores", weight=50, pending=0, priority=-1)])
    [3, 8, 0]
    """
    given = list(candidates)
    eligible = [candidate for candidate in given if candidate.weight > 0]
    highest = max((candidate.priority for candidate in eligible), default=0)
    racing = [candidate for candidate in eligible if candidate.priority == highest]
    pending = sum(candidate.pending for candidate in racing)
    weight = sum(candidate.weight for candidate in racing)
    return [
        max(0, one.weight * (pending + 1) - weight * one.pending)
        if one.weight > 0 and one.priority == highest
        else 0
        for one in given
    ]


@dataclass(frozen=True, slots=True)
class Contender:
    """A type that wants its share; ``pending`` is how many of its works are running."""

    name: str
    weight: int
    pending: int
    priority: int


def capped(wishes: Mapping[str, int], controls: Controls, running: Mapping[str, int]) -> dict[str, int]:
    """Return at most how many works of each type may be claimed, none of them more than are wanted.

    >>> from django_ayework.rules.controls import TypeControl
    >>> controls = Controls({"mail": TypeControl(max_running=5), "video": TypeControl(max_claimed=1)})
    >>> capped({"mail": 8, "video": 8, "rest": 8}, controls, {"mail": 3})
    {'mail': 2, 'video': 1, 'rest': 8}
    """
    caps = {}
    for type, number in wishes.items():
        control = controls.of(type)
        room = max(0, control.max_running - running.get(type, 0)) if control.max_running else number
        caps[type] = min(number, room, control.max_claimed or number)
    return caps


def allocated(
    caps: Mapping[str, int], number: int, controls: Controls, running: Mapping[str, int], random: Random
) -> dict[str, int]:
    """Divide ``number`` claims among the types within their caps, one by one.

    Types of the highest priority come first; among them the chances follow the weights and what is running
    already (go-coordinate's formula, behaviour C22).
    """
    contenders = {
        type: Contender(type, controls.of(type).weight, running.get(type, 0), controls.of(type).priority)
        for type, cap in caps.items()
        if cap > 0
    }
    shares: Counter[str] = Counter()
    while contenders and shares.total() < number:
        [chosen] = random.choices(list(contenders.values()), weights(contenders.values()))
        shares[chosen.name] += 1
        contenders[chosen.name] = replace(chosen, pending=chosen.pending + 1)
        if shares[chosen.name] == caps[chosen.name]:
            del contenders[chosen.name]
    return dict(shares)


@dataclass(frozen=True, slots=True)
class Scope:
    """Queues and types to serve, all when empty, and types to leave to others.

    >>> Scope(queues=("mail",), exclude_types=("shop.video",)).serves(("mail", "shop.send"))
    True
    """

    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    exclude_types: tuple[str, ...] = ()

    def serves(self, lane: tuple[str, str]) -> bool:
        """Tell whether works of this queue and type are to be claimed, and taken back."""
        queue, type = lane
        return self.serves_queue(queue) and self.serves_type(type)

    def serves_queue(self, queue: str) -> bool:
        """Tell whether works of this queue are to be claimed, of some types at least."""
        return not self.queues or queue in self.queues

    def serves_type(self, type: str) -> bool:
        """Tell whether works of this type are to be claimed, in the queues that are served."""
        return (not self.types or type in self.types) and type not in self.exclude_types


#: All queues and types.
EVERYTHING = Scope()


def several(names: Iterable[str]) -> tuple[str, ...]:
    """Return names given as several or as one.

    >>> several("mail"), several(["mail", "fax"])
    (('mail',), ('mail', 'fax'))
    """
    return (names,) if isinstance(names, str) else tuple(names)


# Works of equal priority are claimed by their turns, so that fairness labels alternate. A turn
# is a number, and each work of a label has another one. A label that begins to wait gets the turn that the
# lane has come to. So a flood of one label takes up many turns, and the first work of another label is in the
# next one.

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Texts of so many digits sort as their numbers do.
DIGITS = 16


class FairnessKey(NamedTuple):
    """Where works take turns with those of other labels."""

    queue: str
    type: str
    priority: int
    fairness: str


def first_turn(now: datetime) -> int:
    """Return the turn of a work that finds no others waiting: later than any that was given before.

    No lane comes to a turn in less than a microsecond.
    """
    return (now - EPOCH) // timedelta(microseconds=1)


def turn_text(turn: int) -> str:
    """Return a turn as a sort key.

    >>> turn_text(first_turn(datetime(2026, 1, 1, tzinfo=UTC)))
    '1767225600000000'
    """
    return f"{turn:0{DIGITS}d}"
