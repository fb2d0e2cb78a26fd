"""Many works that need nothing but their rows: found fit to be queued, and made into rows some at a time.

So whoever queues very many works holds few rows at any moment, which keeps the garbage collector idle.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from datetime import datetime
from typing import Any, overload

from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.flow.births import NOTHING_GIVEN, Family, Mould, born, likeness, one_of_each
from django_ayework.flow.direct import skips_queue
from django_ayework.flow.gate_payload import encoded_input
from django_ayework.flow.options import resolve
from django_ayework.store.rows import WorkRow

#: So few kinds of works always have a mould each, and more if there are so many works of a kind.
FEW, WORKS_OF_A_KIND = 3, 4


def are_plain(requests: Sequence[WorkRequest[Any, Any]], given: Mapping[str, Any]) -> bool:
    """Tell whether works can be drafts that wait for workers, with these options of their enqueue."""
    samples = one_of_each(requests)
    if not are_few(samples, requests) or any(skips_queue(sample, given) for sample in samples):
        return False
    return all(is_plain(sample, given) for sample in samples) and not are_twins(requests)


def plain_kinds(requests: Sequence[WorkRequest[Any, Any]]) -> set[Hashable]:
    """Return the likenesses of works that can be drafts; none if a work is there twice."""
    samples = one_of_each(requests)
    if not are_few(samples, requests) or are_twins(requests):
        return set()
    return {likeness(sample) for sample in samples if is_plain(sample, NOTHING_GIVEN)}


def are_few(samples: Sized, requests: Sized) -> bool:
    """Tell whether there are works, and so few kinds of them that moulds are worthwhile."""
    return 0 < len(samples) <= max(FEW, len(requests) // WORKS_OF_A_KIND)


def is_plain(sample: WorkRequest[Any, Any], given: Mapping[str, Any]) -> bool:
    """Tell whether a work is queued whatever else there is, and waits for nothing."""
    if isinstance(sample, GateRequest):
        return False
    resolved = resolve(sample, given, released=False)
    return not resolved.blockers and resolved.dedup is None and resolved.unit is None


def are_twins(requests: Sequence[WorkRequest[Any, Any]]) -> bool:
    """Tell whether two of the requests have one id."""
    return len({request.id for request in requests}) < len(requests)


class Drafts(Sequence[WorkRow]):
    """The rows of requests, made when they are asked for: the database stores some while others are made."""

    def __init__(
        self,
        requests: Sequence[WorkRequest[Any, Any]],
        now: datetime,
        family: Family,
        given: Mapping[str, Any] = NOTHING_GIVEN,
    ) -> None:
        """Make the moulds of requests that are plain. Raises NotEncodable or PayloadTooLarge."""
        samples = one_of_each(requests)
        births = {likeness(sample): born(sample, given, family, now) for sample in samples}
        self.now = now
        self.group_id = family.group_id
        self.samples = [birth.row for birth in births.values()]
        self._moulds = {like: Mould.of(birth) for like, birth in births.items()}
        self._requests = requests
        self._inputs: Sequence[str] | None = None

    def encode(self) -> None:
        """Encode all inputs now. Raises NotEncodable or PayloadTooLarge, where a row would raise it later."""
        self._inputs = [*map(encoded_input, self._requests)]

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
            return [*map(self._row, self._requests[place], self._inputs_at(place))]
        place = range(len(self))[place]
        return self[place : place + 1][0]

    def __iter__(self) -> Iterator[WorkRow]:
        return map(self._row, self._requests, self._inputs_at(slice(None)))

    def _inputs_at(self, place: slice) -> Iterable[str]:
        """Return the inputs of some, encoded."""
        return map(encoded_input, self._requests[place]) if self._inputs is None else self._inputs[place]

    def _row(self, request: WorkRequest[Any, Any], input: str) -> WorkRow:
        """Make the row of a request."""
        return self._moulds[likeness(request)].row(request.id, input)
