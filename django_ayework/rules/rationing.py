"""How many works of each type a claim may take: limits first, then priorities and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from django_ayework.rules.controls import Controls
from django_ayework.rules.weighting import weights


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


def rationed(
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
