"""Delivery: the ids of works that became due are pushed to the Queue of their queue, after the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from django_ayework.conf import get_settings
from django_ayework.define.types import registry
from django_ayework.flow.sending import Sender
from django_ayework.ports.queue import get_queue
from django_ayework.rules.controls import DEFAULT_WEIGHT, TypeControl

#: Ids by the names of their queues.
Ids: TypeAlias = Mapping[str, Sequence[str]]
#: Ids that the committing thread pushes; the sending thread pushes more.
QUICK = 100
#: Ids that wait for the sending thread; those beyond are dropped, and workers find their works.
MOST_PENDING = 100_000


def may_be_delivered(type: str) -> bool:
    """Tell whether workers may claim works of a type by their ids, as far as its code says.

    What takes a decision at the claim is claimed from the table: limits, weights, units, batches, doers.
    """
    known = registry.find(type)
    if known is None or registry.batch(type) is not None or registry.order_of(type) == "unit":
        return False
    options = known.settings
    has_doer = options.doer is not None or get_settings().doer is not None
    return not (has_doer or options.max_running or options.weight != DEFAULT_WEIGHT)


def is_limited(control: TypeControl) -> bool:
    """Tell whether operators have decided something that takes a decision at the claim."""
    return bool(control.max_running or control.max_claimed) or control.is_ranked


def is_delivered(queue: str, type: str) -> bool:
    """Tell whether the ids of these works are pushed."""
    return queue in get_settings().queues and may_be_delivered(type)


class IdBatch:
    """Ids that are pushed together, by the names of their queues."""

    is_flood = False

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {}
        self._room = MOST_PENDING

    def __bool__(self) -> bool:
        return bool(self.ids)

    def add(self, more: Ids, /) -> None:
        """Add ids, as far as there is room."""
        for name, ids in more.items():
            self.ids.setdefault(name, []).extend(ids[: self._room])
            self._room -= min(self._room, len(ids))


class IdSender(Sender[Ids]):
    """Pushes ids to the Queues of their queues."""

    thread_name = "ayework-delivery-sender"
    failure = "queue", "ids could not be delivered, and workers will find their works in the table"

    def empty_batch(self) -> IdBatch:
        """See Sender.empty_batch()."""
        return IdBatch()

    def push(self, ids: Ids) -> None:
        """Push ids soon."""
        self.send_soon(ids, is_quick=sum(map(len, ids.values())) <= QUICK)

    def transmit(self, batch: IdBatch) -> None:
        """See Sender.transmit()."""
        for name, ids in batch.ids.items():
            get_queue(name).push(name, ids)


id_sender = IdSender()


def push_staged(staged: Iterable[tuple[str, str, str]]) -> None:
    """Push the ids of works that have become due, each given with its queue and its type."""
    ids: dict[str, list[str]] = {}
    for id, queue, type in staged:
        if is_delivered(queue, type):
            ids.setdefault(queue, []).append(id)
    if ids:
        id_sender.push(ids)
