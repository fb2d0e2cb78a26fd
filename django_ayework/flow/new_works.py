"""From requests to rows: a request and its options become a new work.

Whatever costs time and is the same for all works of a type that are queued with the same options is worked
out once, and kept in a row template. Everything that queues works comes through here: ``enqueue()`` and
``enqueue_many()``, handlers, gates that open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django.core.signals import setting_changed

from django_ayework.conf import get_settings
from django_ayework.define.options import combined
from django_ayework.define.requests import GATE_TYPE, GateRequest, WorkRequest
from django_ayework.define.types import registry
from django_ayework.errors import InvalidOption
from django_ayework.flow.payloads import (
    DEFAULT_QUEUE,
    StoredOptions,
    codec_of,
    encode_options,
    encode_releases,
    encoded_input,
    with_headers,
)
from django_ayework.flow.propagation import headers_for
from django_ayework.propagation import Queueing, propagators
from django_ayework.rules.codec import Codec
from django_ayework.rules.controls import first_turn, turn_text
from django_ayework.rules.durations import later
from django_ayework.rules.identity import Dedup
from django_ayework.rules.retry import RetryPolicy, resolve_deadline
from django_ayework.rules.states import Status
from django_ayework.store.database import clock
from django_ayework.store.rows import WorkRow

NOTHING_GIVEN: Mapping[str, Any] = {}
#: Options that often differ from work to work: columns of the row, on which no other option depends.
PER_WORK = frozenset({"about", "dedup", "fairness", "unit"})
#: Row templates that are kept.
MOST_TEMPLATES = 1024


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where new works belong: their group (None for a work that is alone), their parent and their chain."""

    group_id: str | None = None
    parent_id: str | None = None
    released: bool = False  # by a gate
    chain_id: str | None = None  # of a continuation
    chain_index: int = 0
    dedup: tuple[str | None, str | None] = (None, None)  # key and type of a chain, which its works inherit
    headers: Mapping[str, str] | None = None  # to store with the works; None: those that propagators give

    @classmethod
    def of(cls, parent: WorkRow) -> Lineage:
        """Return the lineage of works that this work queues."""
        return cls(parent.group, parent.id)

    @classmethod
    def continuing(cls, step: WorkRow) -> Lineage:
        """Return the lineage of the work that continues this work's chain."""
        return cls(
            step.group,
            step.id,
            chain_id=step.chain,
            chain_index=step.chain_index + 1,
            dedup=(step.dedup_key, step.dedup_type),
        )

    def dedup_of(self, type: str, dedup: Dedup | None) -> tuple[str | None, str | None]:
        """Return the key and type by which a new work is found: those of its chain, if it continues one."""
        if self.chain_id is not None:
            return self.dedup
        return (None, None) if dedup is None else (dedup.key, type)


#: Of works that ``enqueue()`` queues, each a group and a chain of its own.
ALONE = Lineage()


class NewWork(NamedTuple):
    """A work to insert, unless ``dedup`` or its unit finds one. A gate comes with its request."""

    row: WorkRow
    gate: GateRequest[Any] | None = None
    blockers: tuple[str, ...] = ()  # chains that must succeed before the work starts
    dedup: Dedup | None = None
    skips_queue: bool = False  # the process that enqueues it makes its first attempt

    @property
    def is_plain(self) -> bool:
        """Whether inserting its row is all there is to do."""
        waits = self.gate is not None or self.blockers
        return not waits and self.dedup is None and self.row.unit is None


@dataclass(frozen=True, slots=True, eq=False)
class RowTemplate:
    """The columns that works of one type share when they are queued with the same options.

    ``row`` has the columns that follow from the type and the options alone.
    """

    row: WorkRow
    codec: Codec
    start: datetime | float | None  # a moment, or seconds from queueing
    expires: float | None  # seconds from queueing
    deadline: datetime | None
    blockers: tuple[str, ...]
    dedup: Dedup | None
    skips_queue: bool
    goes_by_unit: bool

    @property
    def counts_from_now(self) -> bool:
        """Whether a time (a window of ``dedup`` too) must be measured on the database's clock.

        A gate may open as it is queued, and what it queues counts from then, too.
        """
        is_delayed = isinstance(self.start, float) and self.start > 0
        return bool(is_delayed or self.expires or self.dedup or self.row.type == GATE_TYPE)

    def with_own(self, options: Mapping[str, Any]) -> RowTemplate:
        """Return the template with other values for options of PER_WORK."""
        about_type, about_id = options.get("about", (self.row.about_type, self.row.about_id))
        row = self.row._replace(
            about_type=about_type,
            about_id=about_id,
            fairness=options.get("fairness", self.row.fairness),
            unit=options.get("unit", self.row.unit),
        )
        return replace(self, row=row, dedup=options.get("dedup", self.dedup))

    def row_at(self, now: datetime, lineage: Lineage, headers: Mapping[str, str] | None) -> WorkRow:
        """Return the row of works that are queued now with these headers, but for id and input."""
        start = self.start
        run_at = start or now if isinstance(start, datetime | None) else later(now, start)
        dedup_key, dedup_type = lineage.dedup_of(self.row.type, self.dedup)
        turn = turn_text(first_turn(now)) if self.row.fairness else ""  # if it is the first of its lane
        deadline = self.deadline
        if self.expires is not None:
            deadline = resolve_deadline(now, self.expires, deadline)
        return self.row._replace(
            status=Status.PENDING if run_at <= now else Status.SCHEDULED,
            group_id=lineage.group_id,
            parent_id=lineage.parent_id,
            chain_id=lineage.chain_id,
            chain_index=lineage.chain_index,
            deadline=deadline,
            queued_at=now,
            run_at=run_at,
            dedup_key=dedup_key,
            dedup_type=dedup_type,
            sort_key=(self.row.unit or "") if self.goes_by_unit else turn,
            options=with_headers(self.row.options, headers) if headers else self.row.options,
        )

    def new_work(self, request: WorkRequest[Any, Any], row: WorkRow) -> NewWork:
        """Return the work of a request; ``row`` is from row_at(). Raises NotEncodable or PayloadTooLarge."""
        if not isinstance(request, GateRequest):
            # The other columns are shared. _replace() would take three times as long, for each new work.
            own = WorkRow._make((request.id, encoded_input(request, self.codec), *row[2:]))
            return NewWork(own, None, self.blockers, self.dedup, self.skips_queue)
        row = row._replace(
            id=request.id,
            status=Status.BLOCKED,
            input=encode_releases(request.releases, request.timeout),
            deadline=row.deadline if request.timeout is None else later(row.queued_at, request.timeout),
        )
        return NewWork(row, request, (), self.dedup, self.skips_queue)


def build_new_works(
    requests: Iterable[WorkRequest[Any, Any]],
    lineage: Lineage = ALONE,
    now: datetime | None = None,
    given: Mapping[str, Any] = NOTHING_GIVEN,
) -> list[NewWork]:
    """Return the new works of requests that are queued with the options ``given``, which must be checked.

    Without ``now`` the clock tells it, set to the database's where times count from now. Raises
    InvalidOption, NotEncodable, PayloadTooLarge.
    """
    requests = list(requests)
    templates = [template_of(request, given, lineage.released) for request in requests]
    distinct = set(templates)
    if now is None:
        now = clock.read() if any(template.counts_from_now for template in distinct) else clock.now()
    headers = lineage.headers
    if headers is None and propagators and requests:
        headers = headers_of_new(requests, {template.row.queue for template in distinct}, lineage)
    rows = {template: template.row_at(now, lineage, headers) for template in distinct}
    return [
        template.new_work(request, rows[template])
        for request, template in zip(requests, templates, strict=True)
    ]


def build_new_work(
    request: WorkRequest[Any, Any], given: Mapping[str, Any], lineage: Lineage, now: datetime
) -> NewWork:
    """Return the new work of one request, as build_new_works() does."""
    [new_work] = build_new_works([request], lineage, now, given)
    return new_work


def headers_of_new(
    requests: Sequence[WorkRequest[Any, Any]], queues: set[str], lineage: Lineage
) -> dict[str, str]:
    """Ask the propagators for the headers of works that are queued together, into these queues."""
    types = {request.type for request in requests}
    return headers_for(
        Queueing(
            number=len(requests),
            id=requests[0].id if len(requests) == 1 else None,
            type=types.pop() if len(types) == 1 else None,
            queue=queues.pop() if len(queues) == 1 else None,
            parent=lineage.parent_id,
            continues=lineage.chain_id is not None,
        )
    )


def template_of(request: WorkRequest[Any, Any], given: Mapping[str, Any], released: bool) -> RowTemplate:
    """Return the template of a request's row. Raises InvalidOption for a fairness label that has no effect.

    Options ``given`` to ``enqueue()`` go before those that the type's ``options()`` computed, those before
    the type's constants, and those before the settings. ``retry`` is merged field by field.
    """
    if not given and not request.options:
        template = template_with(registry.version, request.type, (), (), released)
    else:
        computed, above = shared(request.options), shared(given)
        template = template_with(registry.version, request.type, computed, above, released)
        own = {**request.options, **given}
        if not PER_WORK.isdisjoint(own):
            template = template.with_own(own)
    if template.row.fairness:
        require_turns(template)
    return template


def shared(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the options that others are likely to be queued with, too, as a key to look up."""
    return tuple(item for item in options.items() if item[0] not in PER_WORK)


def require_turns(template: RowTemplate) -> None:
    """Raise InvalidOption for a label that has no effect: works that are claimed by unit take no turns.

    A doer, though, reads the labels of the works that it holds.
    """
    type, fairness = template.row.type, template.row.fairness
    if not template.goes_by_unit or get_settings().doer is not None:
        return
    work_type = registry.find(type)
    if work_type is None or work_type.settings.doer is None:
        raise InvalidOption(
            f"expected no fairness= for {type!r}, got: {fairness!r}. Its works are claimed by unit, as it "
            'says order="unit" or another type names it with then=, so labels take no turns. Leave fairness '
            'out, or let the works of this type go by time: @work(order="time").',
            code="fairness-without-turns",
        )


@lru_cache(MOST_TEMPLATES)
def template_with(
    version: int, type: str, own: tuple[Any, ...], given: tuple[Any, ...], released: bool
) -> RowTemplate:
    """Return the template of works of a type with these options; a gate has no type.

    It is kept for this ``version`` of the registry, until the settings change.
    """
    work_type = registry.find(type)
    constants: Mapping[str, Any] = work_type.constants if work_type is not None else {}
    options: dict[str, Any] = {**combined(dict(given), combined(dict(own), constants))}
    stored = StoredOptions(
        retry=RetryPolicy.resolve(options.get("retry"), get_settings().retry),
        timeout=options.get("timeout"),
        expires=options.get("expires"),
        explicit_deadline="deadline" in options,
        lease=options.get("lease"),
        released=released,
        blocked=bool(options.get("blockers")),
        redact=work_type.settings.redact if work_type is not None else (),
    )
    return RowTemplate(
        row=new_row(type, options, encode_options(stored)),
        codec=codec_of(work_type),
        start=options.get("run_at", options.get("delay")),
        expires=options.get("expires"),
        deadline=options.get("deadline"),
        blockers=tuple(options.get("blockers", ())),
        dedup=options.get("dedup"),
        skips_queue=options.get("skip_queue", work_type is not None and work_type.settings.skip_queue),
        goes_by_unit=registry.order_of(type) == "unit",
    )


def forget_templates(*, setting: str, **kwargs: object) -> None:
    """Forget the templates when a test changes the settings."""
    if setting == "AYEWORK":
        template_with.cache_clear()


setting_changed.connect(forget_templates, dispatch_uid="django_ayework.flow.new_works")


def new_row(type: str, options: Mapping[str, Any], stored: str) -> WorkRow:
    """Return a row with the columns that follow from type and options; row_at() has the moments."""
    about_type, about_id = options.get("about", (None, None))
    return WorkRow(
        id="",
        input="",
        type=type,
        queue=options.get("queue", DEFAULT_QUEUE),
        priority=options.get("priority", 0),
        fairness=options.get("fairness", ""),
        about_type=about_type,
        about_id=about_id,
        options=stored,
        unit=options.get("unit"),
    )
