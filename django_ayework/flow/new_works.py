"""From requests to rows: a work as it is when it is enqueued."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_ayework.define.registry import registry
from django_ayework.define.requests import GateRequest, WorkRequest
from django_ayework.flow.gates import encode_releases, encoded_input
from django_ayework.flow.requests import Resolved, resolve
from django_ayework.rules.controls import first_turn, turn_text
from django_ayework.rules.durations import later
from django_ayework.rules.identity import Dedup
from django_ayework.rules.states import Status
from django_ayework.store.rows import PLACE, WorkRow

NOTHING_GIVEN: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where new works belong: their group (None while alone) and who queued them."""

    group_id: str | None = None
    parent_id: str | None = None
    released: bool = False  # queued by a gate
    chain_id: str | None = None  # of a continuation
    chain_index: int = 0
    dedup: tuple[str | None, str | None] = (None, None)  # key and type of a chain, which its works inherit

    @classmethod
    def of(cls, parent: WorkRow) -> Lineage:
        """Return where the works belong that this one queues."""
        return cls(parent.group, parent.id)

    @classmethod
    def continuing(cls, step: WorkRow) -> Lineage:
        """Return where the work belongs that continues this one's chain."""
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


#: Of works that are queued from outside, each for itself.
ALONE = Lineage()


class NewWork(NamedTuple):
    """A work to insert, unless ``dedup`` finds one.

    A gate brings the request it was built from, others the chains that block them.
    """

    row: WorkRow
    gate: GateRequest[Any] | None = None
    blockers: tuple[str, ...] = ()
    dedup: Dedup | None = None
    skips_queue: bool = False  # this process makes its first attempt

    @property
    def waits(self) -> bool:
        """Whether it begins by waiting for others."""
        return self.gate is not None or bool(self.blockers)


def build_new_work(
    request: WorkRequest[Any, Any], given: Mapping[str, Any], lineage: Lineage, now: datetime
) -> NewWork:
    """Return the row of a request, its options resolved and its input encoded."""
    return build_new_work_as(request, resolve(request, given, lineage.released), lineage, now)


def build_new_work_as(
    request: WorkRequest[Any, Any], resolved: Resolved, lineage: Lineage, now: datetime
) -> NewWork:
    """Return the row of a request whose options are resolved; its input is encoded."""
    if isinstance(request, GateRequest):
        row = gate_row(request, resolved, lineage, now)
        return NewWork(row, gate=request, dedup=resolved.dedup)
    row = work_row(request, resolved, lineage, now, encoded_input(request))
    return NewWork(row, blockers=resolved.blockers, dedup=resolved.dedup)


def build_new_works(
    requests: Iterable[WorkRequest[Any, Any]],
    lineage: Lineage,
    now: datetime,
    given: Mapping[str, Any] = NOTHING_GIVEN,
) -> list[NewWork]:
    """Return the rows of several requests of one family, queued with the same options.

    The first of those that are alike makes the mould for the others.
    """
    new_works: list[NewWork] = []
    templates: dict[Hashable, RowTemplate] = {}
    for request in requests:
        like = likeness(request)
        template = templates.get(like)
        if template is not None:
            new_works.append(template.cast(request.id, encoded_input(request)))
            continue
        new_work = build_new_work(request, given, lineage, now)
        new_works.append(new_work)
        if new_work.gate is None:
            templates[like] = RowTemplate.of(new_work)
    return new_works


def likeness(request: WorkRequest[Any, Any]) -> Hashable:
    """Return what requests have in common that differ in nothing but their ids and inputs."""
    if isinstance(request, GateRequest):
        return request.id
    return (request.type, *request.options.items()) if request.options else request.type


def one_of_each(requests: Iterable[WorkRequest[Any, Any]]) -> list[WorkRequest[Any, Any]]:
    """Return one of the requests that are alike, for each such kind."""
    return list({likeness(request): request for request in requests}.values())


@dataclass(frozen=True, slots=True)
class RowTemplate:
    """A birth without what is a work's own: its id and its input."""

    new_work: NewWork
    before: tuple[Any, ...]  # the columns between id and input
    after: tuple[Any, ...]

    @classmethod
    def of(cls, new_work: NewWork) -> RowTemplate:
        """Return the mould of works that are queued as this one."""
        place = PLACE["input"]
        return cls(new_work, new_work.row[1:place], new_work.row[place + 1 :])

    def row(self, id: str, input: str) -> WorkRow:
        """Return the row of another work."""
        return WorkRow._make((id, *self.before, input, *self.after))

    def cast(self, id: str, input: str) -> NewWork:
        """Return the birth of another work."""
        return NewWork(self.row(id, input), None, self.new_work.blockers, self.new_work.dedup)


def work_row(
    request: WorkRequest[Any, Any], resolved: Resolved, lineage: Lineage, now: datetime, text: str
) -> WorkRow:
    """Return the row of a work that is due or scheduled."""
    status = Status.PENDING if resolved.run_at(now) <= now else Status.SCHEDULED
    deadline = resolved.deadline_at(now)
    return new_row(request, resolved, lineage, now, status=status, input=text, deadline=deadline)


def gate_row(request: GateRequest[Any], resolved: Resolved, lineage: Lineage, now: datetime) -> WorkRow:
    """Return the row of a gate: blocked, with the works it releases as its input."""
    deadline = resolved.deadline_at(now) if request.timeout is None else later(now, request.timeout)
    return new_row(
        request,
        resolved,
        lineage,
        now,
        status=Status.BLOCKED,
        input=encode_releases(request.releases, request.timeout),
        deadline=deadline,
    )


def new_row(
    request: WorkRequest[Any, Any],
    resolved: Resolved,
    lineage: Lineage,
    now: datetime,
    *,
    status: Status,
    input: str,
    deadline: datetime | None,
) -> WorkRow:
    """Return a row with everything that birth leaves open at its start value."""
    dedup_key, dedup_type = lineage.dedup_of(request.type, resolved.dedup)
    return WorkRow(
        id=request.id,
        type=request.type,
        queue=resolved.queue,
        status=status,
        reason="",
        priority=resolved.priority,
        fairness=resolved.fairness,
        group_id=lineage.group_id,
        parent_id=lineage.parent_id,
        chain_id=lineage.chain_id,
        chain_index=lineage.chain_index,
        about_type=resolved.about[0],
        about_id=resolved.about[1],
        input=input,
        options=resolved.stored_text,
        result=None,
        error="",
        progress=None,
        attempt=0,
        delivery=0,
        worker=None,
        leased_until=None,
        deadline=deadline,
        queued_at=now,
        run_at=resolved.run_at(now),
        started_at=None,
        ended_at=None,
        completed_by=None,
        dedup_key=dedup_key,
        dedup_type=dedup_type,
        unit=resolved.unit,
        sort_key=sort_key_of(request.type, resolved, now),
    )


def sort_key_of(type: str, resolved: Resolved, now: datetime) -> str:
    """Return what a work of a type goes by: its unit, its turn if it were the first to wait, or nothing."""
    if not resolved.unit and not resolved.fairness:
        return ""
    if registry.order_of(type) == "unit":
        return resolved.unit or ""
    return turn_text(first_turn(now)) if resolved.fairness else ""
