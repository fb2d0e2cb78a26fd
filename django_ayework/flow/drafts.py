"""Many works that need nothing but their rows: found fit to be queued, and made into rows some at a time.

So a call with very many works holds few rows at any moment, which keeps the garbage collector idle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, overload

from django_ayework.define.events import Kind
from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.flow.births import Family, Mould, born, one_of_each
from django_ayework.flow.closing import close
from django_ayework.flow.direct import skips_queue
from django_ayework.flow.events import is_heard
from django_ayework.flow.garbage import collecting_only_what_is_new
from django_ayework.flow.gate_payload import encoded_input
from django_ayework.flow.handles import Handle, remember_uncommitted
from django_ayework.flow.ledger import Ledger, note_taken
from django_ayework.flow.options import resolve
from django_ayework.store.database import atomic
from django_ayework.store.inserts import insert_works
from django_ayework.store.rows import WorkRow, groups_of


def are_plain(requests: Sequence[WorkRequest[Any, Any]], given: Mapping[str, Any]) -> bool:
    """Tell whether there are works which need nothing but their rows, and none is there twice."""
    samples = one_of_each(requests)
    return bool(samples) and all(is_plain(sample, given) for sample in samples) and not are_twins(requests)


def is_plain(sample: WorkRequest[Any, Any], given: Mapping[str, Any]) -> bool:
    """Tell whether a work is queued whatever else there is, and started by whoever comes."""
    if sample.options or isinstance(sample, GateRequest) or skips_queue(sample, given):
        return False
    resolved = resolve(sample, given, released=False)
    return not resolved.blockers and resolved.dedup is None and resolved.unit is None


def are_twins(requests: Sequence[WorkRequest[Any, Any]]) -> bool:
    """Tell whether two of the requests have one id."""
    return len({request.id for request in requests}) < len(requests)


class Drafts(Sequence[WorkRow]):
    """The rows of requests, made when they are asked for: the database stores some while others are made."""

    def __init__(
        self, requests: Sequence[WorkRequest[Any, Any]], given: Mapping[str, Any], now: datetime
    ) -> None:
        """Make the moulds of requests that are plain."""
        births = {request.type: born(request, given, Family(), now) for request in one_of_each(requests)}
        self.now = now
        self.samples = {type: birth.row for type, birth in births.items()}
        self._moulds = {type: Mould.of(birth) for type, birth in births.items()}
        self._requests = requests

    @property
    def ids(self) -> list[str]:
        """The ids of the works."""
        return [request.id for request in self._requests]

    def __len__(self) -> int:
        return len(self._requests)

    @overload
    def __getitem__(self, place: int) -> WorkRow: ...
    @overload
    def __getitem__(self, place: slice) -> list[WorkRow]: ...
    def __getitem__(self, place: int | slice) -> WorkRow | list[WorkRow]:
        """Make one row, or some. Raises NotEncodable or PayloadTooLarge for an input."""
        if isinstance(place, slice):
            return [*map(self._row, self._requests[place])]
        return self._row(self._requests[place])

    def _row(self, request: WorkRequest[Any, Any]) -> WorkRow:
        """Make the row of a request."""
        return self._moulds[request.type].row(request.id, encoded_input(request))


def insert_drafts(drafts: Drafts) -> list[Handle[Any, Any]]:
    """Insert works in one transaction; return their handles, also of those that were queued before.

    An input that cannot be stored takes back the works before it: the transaction at hand goes on.
    """
    ids = drafts.ids
    with collecting_only_what_is_new(len(ids)), atomic():
        taken = insert_works(drafts)
        note_taken(taken)
        ledger = Ledger(drafts.now)
        ledger.book_births(new_works(drafts, taken))
        close(ledger)
        remember_uncommitted([id for id in ids if id not in taken])
        groups = groups_of(taken)
        return [Handle(id, groups.get(id, id), deduplicated=id in taken) for id in ids]


def new_works(drafts: Drafts, taken: Collection[str]) -> list[WorkRow]:
    """Return the rows of works that were not queued before; one of each type will do where nobody listens."""
    if not taken and not any(is_heard(Kind.QUEUED, type) for type in drafts.samples):
        return list(drafts.samples.values())
    return [row for row in drafts if row.id not in taken]
