"""Stored works that new code could not run: what does not fit, in groups, with sentences and remedies.

``flow.predeploy`` reads the stored works and finds the misfits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from django_ayework.errors import did_you_mean
from django_ayework.rules.codec.text import TAG, UnknownTag
from django_ayework.rules.formatting import counted, if_renamed

#: Ids that a group names, and groups that are kept apart. Causes beyond that are counted only.
EXAMPLES = 3
MOST_GROUPS = 200


class Cause(StrEnum):
    """Why something stored does not fit the code. New causes may come."""

    UNKNOWN_TYPE = "unknown_type"  # no type of work has the name
    MISSING_ARGUMENT = "missing_argument"  # the handler requires an argument that is not stored
    UNEXPECTED_ARGUMENT = "unexpected_argument"  # the handler has no such parameter
    UNREADABLE_INPUT = "unreadable_input"  # the codec of the type cannot read the stored text
    UNKNOWN_VALUE = "unknown_value"  # a value was stored by a CustomType that the codec does not have
    UNKNOWN_TARGET = "unknown_target"  # no type of work has the name that the type gives as then=
    UNREADABLE_GATE = "unreadable_gate"  # the condition of a gate, or the works that it releases
    UNKNOWN_QUEUE = "unknown_queue"  # --queues does not name it; or no type uses it, and no worker serves it
    UNDECLARED_SCHEDULE = "undeclared_schedule"  # no code declares it, so it will be disabled


class Subject(StrEnum):
    """What does not fit."""

    WORK = "work"
    RELEASE = "release"  # a work that a gate will queue; the examples are gates
    SCHEDULE = "schedule"  # the examples are names


#: Causes that keep nothing from running.
NOTES = frozenset({Cause.UNDECLARED_SCHEDULE})


class Misfit(NamedTuple):
    """A stored thing does not fit. ``name`` is the type, or else the queue or the schedule.

    ``detail`` is the argument, the error without what differs from work to work, or the tag of a value.
    """

    subject: Subject
    cause: Cause
    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MisfitGroup:
    """All misfits of one subject, cause, name and detail: how many, and a few examples.

    ``blocks``: the works cannot run; otherwise the group is a note.
    """

    subject: Subject
    cause: Cause
    name: str
    detail: str
    number: int
    examples: tuple[str, ...]
    blocks: bool
    text: str
    remedy: str


@dataclass(slots=True)
class MisfitCounts:
    """Misfits in groups. Memory is bounded: ``others`` counts misfits beyond ``MOST_GROUPS`` groups."""

    others: int = 0
    _numbers: dict[Misfit, int] = field(default_factory=dict)
    _examples: dict[Misfit, list[str]] = field(default_factory=dict)

    def add(self, misfits: Iterable[Misfit], example: str) -> None:
        """Count the misfits of one work or schedule, or of the works of one gate."""
        for misfit in misfits:
            if misfit not in self._numbers and len(self._numbers) >= MOST_GROUPS:
                self.others += 1
                continue
            self._numbers[misfit] = self._numbers.get(misfit, 0) + 1
            examples = self._examples.setdefault(misfit, [])
            if len(examples) < EXAMPLES and example not in examples:
                examples.append(example)

    @property
    def total(self) -> int:
        """How many misfits there are, notes included."""
        return self.others + sum(self._numbers.values())

    def groups(self, types: Collection[str], queues: Collection[str]) -> list[MisfitGroup]:
        """Return the groups, the largest first and notes last. ``types`` and ``queues`` are known names."""
        found = [self._group(misfit, types, queues) for misfit in self._numbers]
        return sorted(found, key=lambda group: (not group.blocks, -group.number, group.name, group.detail))

    def _group(self, misfit: Misfit, types: Collection[str], queues: Collection[str]) -> MisfitGroup:
        number = self._numbers[misfit]
        return MisfitGroup(
            *misfit[:4],
            number=number,
            examples=tuple(self._examples[misfit]),
            blocks=misfit.cause not in NOTES,
            text=text_of(misfit, number),
            remedy=remedy_of(misfit, types, queues),
        )


def unknown_tags(value: Any) -> list[str]:
    """Return the tags of a decoded value that the codec did not know, sorted.

    >>> unknown_tags({"price": [UnknownTag({"$ayework": "money", "value": 1}), 2]})
    ['money']
    """
    found, left = set[str](), [value]
    while left:
        each = left.pop()
        if isinstance(each, UnknownTag):
            found.add(str(each.get(TAG)))
        elif isinstance(each, dict):
            left += each.values()
        elif isinstance(each, (list, tuple, set, frozenset)):
            left += each
    return sorted(found)


#: What is said of a misfit.
TEXTS = {
    Cause.UNKNOWN_TYPE: "{name}: {number} of this type, which the code does not define.",
    Cause.MISSING_ARGUMENT: "{name}: {number} without the argument {detail!r}, which it requires.",
    Cause.UNEXPECTED_ARGUMENT: "{name}: {number} with the argument {detail!r}, which it does not take.",
    Cause.UNREADABLE_INPUT: "{name}: {number} with an input that the codec cannot read: {detail}",
    Cause.UNKNOWN_VALUE: "{name}: {number} with a value tagged {detail!r}, which the codec does not know.",
    Cause.UNKNOWN_TARGET: "{name}: {number} whose output is for the type {detail!r}, which is not defined.",
    Cause.UNREADABLE_GATE: "{number} that cannot be read: {detail}",
    Cause.UNKNOWN_QUEUE: "{name}: {number} in this queue, which is not among those that workers will serve.",
    Cause.UNDECLARED_SCHEDULE: "{name}: no code declares this schedule, so it will be disabled.",
}
REMEDIES = {
    Cause.MISSING_ARGUMENT: "Give the parameter {detail!r} a default until these works have ended.",
    Cause.UNEXPECTED_ARGUMENT: "Keep the parameter {detail!r}, with a default, until these works have ended.",
    Cause.UNREADABLE_INPUT: "Keep the codec that has stored the inputs, or edit the inputs in the admin.",
    Cause.UNKNOWN_VALUE: "Keep the CustomType of the tag {detail!r} until these works have ended.",
    Cause.UNKNOWN_TARGET: "Correct then= of {name!r}, or the output of these works is dropped.",
    Cause.UNREADABLE_GATE: "Cancel the gates, and queue what they were to release.",
    Cause.UNDECLARED_SCHEDULE: "Nothing, if that is meant; otherwise import the module that declares it.",
}
NOUNS = {Subject.WORK: "work", Subject.RELEASE: "work of a gate", Subject.SCHEDULE: "schedule"}


def text_of(misfit: Misfit, number: int) -> str:
    """Return a group of misfits as a sentence.

    >>> text_of(Misfit(Subject.WORK, Cause.MISSING_ARGUMENT, "shop.pay", "currency"), 2)
    "shop.pay: 2 works without the argument 'currency', which it requires."
    """
    things = "gate" if misfit.cause is Cause.UNREADABLE_GATE else NOUNS[misfit.subject]
    several = "works of gates" if misfit.subject is Subject.RELEASE and number != 1 else None
    number_text = f"{number} {several}" if several else counted(number, things)
    return TEXTS[misfit.cause].format(name=misfit.name, detail=misfit.detail, number=number_text)


def remedy_of(misfit: Misfit, types: Collection[str], queues: Collection[str]) -> str:
    """Return what to do about a misfit, with the nearest known name."""
    if misfit.cause is Cause.UNKNOWN_TYPE:
        return if_renamed(misfit.name, types)
    if misfit.cause is Cause.UNKNOWN_QUEUE:
        hint = did_you_mean(misfit.name, queues)
        return f"Name the queues of all workers with --queues, or move the works to another queue.{hint}"
    return REMEDIES[misfit.cause].format(name=misfit.name, detail=misfit.detail)
