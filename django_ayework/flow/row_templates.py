"""Row templates: works of one type that differ in their inputs only."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import datetime
from typing import Any, overload

from django_ayework.conf import Settings, get_settings
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.flow.after_commit import skips_queue
from django_ayework.flow.gates import encoded_input
from django_ayework.flow.new_works import (
    ALONE,
    NOTHING_GIVEN,
    Lineage,
    RowTemplate,
    build_new_work,
    likeness,
    one_of_each,
    work_row,
)
from django_ayework.flow.payloads import codec_of
from django_ayework.flow.requests import resolve
from django_ayework.rules.codec import Codec
from django_ayework.rules.notifications import Due
from django_ayework.store.clock import clock
from django_ayework.store.database import vendor
from django_ayework.store.insert import BlankInsert
from django_ayework.store.rows import WorkRow

# --- blanks ---
# Works to fill in: most are queued with their input alone, so those of a type differ in little else.

#: What stands for the id and the input of a sample; both have to be something, to have a place in the INSERT.
ANY_ID, ANY_INPUT = "id", "{}"
#: Blanks that are kept.
MOST = 1024


@dataclass(frozen=True, slots=True)
class Blank:
    """What works of a type share: a row but for id, input and moment, its INSERT, and what it is news of."""

    sample: WorkRow
    insert: BlankInsert
    codec: Codec
    due: Due

    def row(self, id: str, input: str, now: datetime) -> WorkRow:
        """Return the row of a work."""
        return self.sample._replace(id=id, input=input, queued_at=now, run_at=now)


def blank_of(request: WorkRequest[Any, Any]) -> Blank | None:
    """Return the blank of works of a request's type; None if there is more to say of this one."""
    work_type = registry.find(request.type)
    if work_type is None or request.options or type(request) is not WorkRequest:
        return None
    settings = get_settings()
    known = _known if _known.settings is settings else known_anew(settings)
    try:
        return known.blanks[work_type]
    except KeyError:
        return known.add(work_type)


class Blanks:
    """The blanks of types, under the settings of which they were made."""

    def __init__(self, settings: Settings | None) -> None:
        self.settings = settings
        self.blanks: dict[AnyWorkType, Blank | None] = {}

    def add(self, work_type: AnyWorkType) -> Blank | None:
        """Make the blank of a type."""
        if len(self.blanks) >= MOST:
            self.blanks.clear()
        blank = self.blanks[work_type] = new_blank(work_type)
        return blank


def known_anew(settings: Settings) -> Blanks:
    """Forget blanks of other settings."""
    global _known
    _known = Blanks(settings)
    return _known


def new_blank(work_type: AnyWorkType) -> Blank | None:
    """Return the blank of a type's works; None if they expire, have a label, or are started by who queues."""
    request = WorkRequest[Any, Any](type=work_type.name, input={}, id=ANY_ID)
    resolved = resolve(request, NOTHING_GIVEN, released=False)
    if skips_queue(request, NOTHING_GIVEN) or resolved.stored.expires is not None:
        return None
    sample = work_row(request, resolved, ALONE, clock.now(), text=ANY_INPUT)
    if sample.fairness:
        return None
    due = Due(frozenset({(sample.queue, sample.type)}))
    return Blank(sample, BlankInsert.of(vendor(), sample), codec_of(work_type), due)


_known = Blanks(None)  # none yet: settings may not be usable, which checks tell

# --- drafts ---
# Many works that need nothing but their rows: found fit to be queued, and made into rows some at a time.
#
# So whoever queues very many works holds few rows at any moment, which keeps the garbage collector idle.

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
        lineage: Lineage,
        given: Mapping[str, Any] = NOTHING_GIVEN,
    ) -> None:
        """Make the moulds of requests that are plain. Raises NotEncodable or PayloadTooLarge."""
        samples = one_of_each(requests)
        new_works = {likeness(sample): build_new_work(sample, given, lineage, now) for sample in samples}
        self.now = now
        self.group_id = lineage.group_id
        self.samples = [new_work.row for new_work in new_works.values()]
        self._templates = {like: RowTemplate.of(new_work) for like, new_work in new_works.items()}
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
        return self._templates[likeness(request)].row(request.id, input)
