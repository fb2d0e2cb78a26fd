"""Many works that need nothing but their rows: found fit to be queued, and made into rows some at a time.

So whoever queues very many works holds few rows at any moment, which keeps the garbage collector idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, overload

from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.flow.births import NOTHING_GIVEN, Family, Mould, born, one_of_each
from django_ayework.flow.direct import skips_queue
from django_ayework.flow.gate_payload import encoded_input
from django_ayework.flow.options import resolve
from django_ayework.store.rows import WorkRow


def are_plain(requests: Sequence[WorkRequest[Any, Any]], given: Mapping[str, Any]) -> bool:
    """Tell whether works can be drafts that wait for workers, with these options of their enqueue."""
    samples = one_of_each(requests)
    if not samples or any(skips_queue(sample, given) for sample in samples):
        return False
    return all(is_plain(sample, given) for sample in samples) and not are_twins(requests)


def plain_types(requests: Sequence[WorkRequest[Any, Any]]) -> set[str]:
    """Return the types of which works without options can be drafts; none if a work is there twice."""
    types = {sample.type for sample in one_of_each(requests) if is_plain(sample, NOTHING_GIVEN)}
    return set() if types and are_twins(requests) else types


def is_plain(sample: WorkRequest[Any, Any], given: Mapping[str, Any]) -> bool:
    """Tell whether a work is queued whatever else there is, and waits for nothing."""
    if sample.options or isinstance(sample, GateRequest):
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
        births = {request.type: born(request, given, family, now) for request in one_of_each(requests)}
        self.now = now
        self.group_id = family.group_id
        self.samples = {type: birth.row for type, birth in births.items()}
        self._moulds = {type: Mould.of(birth) for type, birth in births.items()}
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
        return self._moulds[request.type].row(request.id, input)
