"""Shares: what a worker divides its claims among, so that a flood here does not hold up works there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from django_ayework.define.registry import registry
from django_ayework.doers import Doer
from django_ayework.rules.controls import Controls
from django_ayework.store.lanes import Lane
from django_ayework.worker.sources import doer_of


@dataclass(frozen=True, slots=True)
class Share:
    """Types of one queue that are served together: by priority and age, or if ``ranked`` by weight.

    A ``doer`` runs all of them, or else slots do.
    """

    queue: str
    types: tuple[str, ...]
    ranked: bool = False
    doer: Doer | None = field(default=None, compare=False, repr=False)

    def without(self, types: Collection[str]) -> Share | None:
        """Return the share without some of its types, if any are left."""
        left = tuple(type for type in self.types if type not in types)
        return replace(self, types=left) if left else None


class KnownShares:
    """The shares of the lanes that were asked for last: at rest the same come again and again."""

    def __init__(self) -> None:
        self._lanes: list[Lane] = []
        self._controls: Controls | None = None
        self._version = -1
        self._shares: list[Share] = []

    def of(self, lanes: list[Lane], controls: Controls) -> list[Share]:
        """Return what :func:`shares_of` does."""
        if lanes != self._lanes or controls is not self._controls or registry.version != self._version:
            self._lanes, self._controls, self._version = lanes, controls, registry.version
            self._shares = shares_of(lanes, controls)
        return self._shares


def shares_of(lanes: Iterable[Lane], controls: Controls) -> list[Share]:
    """Return the shares of lanes that are not paused.

    A queue is one, and so is each of its types that is ordered by units or runs in batches. Where types have
    weights or priorities of their own, those decide among all types of the queue, those of each doer apart.

    >>> shares_of([Lane("mail", "shop.send"), Lane("mail", "shop.warn")], Controls())
    [Share(queue='mail', types=('shop.send', 'shop.warn'), ranked=False)]
    """
    served: dict[str, list[str]] = defaultdict(list)
    for queue, type in lanes:
        if controls.permits(queue, type):
            served[queue].append(type)
    return [share for queue, types in served.items() for share in shares_of_queue(queue, types, controls)]


def shares_of_queue(queue: str, types: list[str], controls: Controls) -> list[Share]:
    """Return the shares of one queue: types that different doers run are served apart."""
    doers = {type: doer_of(type) for type in types}
    sources: dict[int, list[str]] = defaultdict(list)
    for type, doer in doers.items():
        sources[id(doer)].append(type)
    return [
        share
        for together in sources.values()
        for share in shares_of_source(queue, together, controls, doers[together[0]])
    ]


def shares_of_source(queue: str, types: list[str], controls: Controls, doer: Doer | None) -> list[Share]:
    """Return the shares of types of a queue that one doer runs, or slots do."""
    if len(types) > 1 and any(controls.of(type).is_ranked for type in types):
        return [Share(queue, tuple(types), ranked=True, doer=doer)]
    alone = [type for type in types if registry.order_of(type) == "unit" or registry.batch(type)]
    by_time = tuple(type for type in types if type not in alone)
    own = [Share(queue, (type,), doer=doer) for type in alone]
    return [Share(queue, by_time, doer=doer), *own] if by_time else own
