"""Enqueueing: requests become rows in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from django_ayework.define.handles import Kind
from django_ayework.define.options import check_id, checked
from django_ayework.define.requests import GateRequest, WorkRequest, require_requests
from django_ayework.errors import InvalidWorkId
from django_ayework.flow.after_commit import insert_after_commit, skips_queue, start_after_commit
from django_ayework.flow.effects import Effects, tell_at_once
from django_ayework.flow.events import has_receivers
from django_ayework.flow.handles import Handle, remember_uncommitted
from django_ayework.flow.identity import leave_taken, originals, require_dedup_fits
from django_ayework.flow.new_works import ALONE, NewWork, build_new_work_as, build_new_works, one_of_each
from django_ayework.flow.payloads import encode_input
from django_ayework.flow.recheck import flush
from django_ayework.flow.requests import Resolved, resolve
from django_ayework.flow.row_templates import Blank, Drafts, are_plain, blank_of
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.flow.units import place_units, require_unit_fits
from django_ayework.store.clock import clock
from django_ayework.store.database import atomic, connection, in_own_transaction
from django_ayework.store.insert import insert_one
from django_ayework.store.rows import WorkRow, find_row, groups_of, statuses_of

R = TypeVar("R")
G = TypeVar("G")


def enqueue_one(request: WorkRequest[R, G], options: Mapping[str, Any]) -> Handle[R, G]:
    """Queue one request; return its handle, or the first one's when it was queued before."""
    if not options and (blank := blank_of(request)) is not None:
        return insert_plain(blank, request)
    given = dict(options)
    own_id, on_commit = given.pop("id", None), given.pop("on_commit", False)
    if own_id is not None:
        request = with_id(request, check_id(own_id, "id"))
    new_work = new_work_of(request, checked(given), on_commit)
    if on_commit:
        require_free(own_id)
        insert_after_commit(
            [new_work.row], partial(in_own_transaction, partial(insert_here, new_work, own_id))
        )
        return Handle(request.id, request.id)
    return insert(new_work, own_id)


def insert_plain(blank: Blank, request: WorkRequest[Any, Any]) -> Handle[Any, Any]:
    """Insert a work of which there is nothing to say but its input.

    Outside of a transaction it is committed by then, so workers are told without more ado.
    """
    id, now = request.id, clock.now()
    text = encode_input(request.type, request.input, blank.codec)
    database = connection()
    if not blank.insert.insert(database, id, text, now):
        leave_taken([blank.row(id, text, now)])
        return existing_handle(id)
    if database.in_atomic_block or not database.autocommit or has_receivers(Kind.QUEUED, request.type):
        row = blank.row(id, text, now)
        tell_on_commit(row)
        return handle_of(row, is_new=True)
    tell_at_once(blank.due)
    return Handle(id, id, chain_id=id)


def require_free(own_id: str | None) -> None:
    """Raise when a work has this id, while the caller can still hear of it."""
    if own_id is not None and find_row(own_id) is not None:
        raise taken_id(own_id)


def taken_id(own_id: str) -> InvalidWorkId:
    """Return the error of an id that is in use."""
    return InvalidWorkId(f"expected id= to be a new id, but a work {own_id!r} exists.", id=own_id)


def with_id(request: WorkRequest[R, G], id: str) -> WorkRequest[R, G]:
    """Return the request under another id."""
    return replace(request, id=id)


def new_work_of(request: WorkRequest[Any, Any], given: Mapping[str, Any], on_commit: bool) -> NewWork:
    """Return the row to insert, as births_of() does for several; the clock is set where it is needed."""
    resolved = resolve(request, given, released=False)
    if needs_clock(request, resolved):
        clock.synchronise()
    new_work = build_new_work_as(request, resolved, ALONE, clock.now())
    require_identity_fits(new_work, on_commit)
    return new_work._replace(skips_queue=True) if skips_queue(request, given) else new_work


def timed(requests: Sequence[WorkRequest[Any, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with their values checked, the clock set where they need it."""
    options = dict(checked(given))
    if any(needs_clock(one, resolve(one, options, released=False)) for one in one_of_each(requests)):
        clock.synchronise()
    return options


def needs_clock(request: WorkRequest[Any, Any], resolved: Resolved) -> bool:
    """Tell whether a relative time must be measured on the database's clock."""
    return resolved.is_relative or (isinstance(request, GateRequest) and request.timeout is not None)


def new_works_of(
    requests: Sequence[WorkRequest[Any, Any]], options: Mapping[str, Any], on_commit: bool
) -> list[NewWork]:
    """Return the rows to insert; whatever can be wrong with a request is found here, before any SQL."""
    new_works = build_new_works(requests, ALONE, clock.now(), options)
    for new_work in new_works:
        require_identity_fits(new_work, on_commit)
    if any(skips_queue(sample, options) for sample in one_of_each(requests)):
        pairs = zip(new_works, requests, strict=True)
        return [new_work._replace(skips_queue=skips_queue(request, options)) for new_work, request in pairs]
    return new_works


def require_identity_fits(new_work: NewWork, on_commit: bool) -> None:
    """Raise TypeError where the caller would be promised an id that a key or a unit may make void."""
    require_dedup_fits(new_work, on_commit)
    require_unit_fits(new_work, on_commit)


def insert(new_work: NewWork, own_id: str | None) -> Handle[Any, Any]:
    """Insert a work; a plain one is a single statement, so it needs no transaction of its own."""
    if new_work.dedup is not None or new_work.row.unit is not None:
        return in_own_transaction(partial(insert_unless_there, new_work, own_id))
    if not new_work.waits:
        return insert_here(new_work, own_id)
    return in_own_transaction(partial(insert_here, new_work, own_id))  # a gate may be decided as it is born


def insert_unless_there(new_work: NewWork, own_id: str | None) -> Handle[Any, Any]:
    """Insert a work, or give the one that is there: one transaction, for the lock on the key to last."""
    unit_of_work = UnitOfWork(new_work.row.queued_at)
    there = {**originals([new_work]), **place_units(unit_of_work, [new_work]).there}
    flush(unit_of_work)
    match = there.get(new_work.row.id)
    return insert_here(new_work, own_id) if match is None else existing_handle(match)


def insert_here(new_work: NewWork, own_id: str | None) -> Handle[Any, Any]:
    """Insert, within the transaction at hand if there is one."""
    is_new = insert_waiting(new_work) if new_work.waits else insert_alone(new_work.row)
    if not is_new and own_id is not None:
        raise taken_id(own_id)
    if not is_new and not new_work.waits:
        leave_taken([new_work.row])
    handle = handle_of(new_work.row, is_new)
    if is_new:
        start_after_commit([new_work])
    return handle


def handle_of(row: WorkRow, is_new: bool) -> Handle[Any, Any]:
    """Return the handle of a work that was queued now, or before."""
    if not is_new:
        return existing_handle(row.id)
    remember_uncommitted([row.id])
    return Handle(row.id, row.group, chain_id=row.id)


def insert_waiting(new_work: NewWork) -> bool:
    """Insert a work that waits for others; False if its id is taken."""
    unit_of_work = UnitOfWork(new_work.row.queued_at)
    taken = unit_of_work.insert([new_work])
    flush(unit_of_work)
    return not taken


def insert_alone(row: WorkRow) -> bool:
    """Insert a work that waits for nobody; False if its id is taken.

    It is in no group, and nothing follows from it: there are no books to close.
    """
    if not insert_one(row):
        return False
    tell_on_commit(row)
    return True


def tell_on_commit(row: WorkRow) -> None:
    """Tell of a work that was queued, once it is committed."""
    effects = Effects(row.queued_at)
    effects.queued(row)
    effects.release_on_commit()


def existing_handle(id: str) -> Handle[Any, Any]:
    """Return the handle of a work that was queued before."""
    row = find_row(id)
    return Handle(id, row.group if row else id, deduplicated=True)


def enqueue_all(
    requests: Sequence[WorkRequest[R, G]], options: Mapping[str, Any], together: bool
) -> list[Handle[R, G]]:
    """Queue requests, all or none; ``together`` makes them one group, whose id is the first one's."""
    if "id" in options:
        raise TypeError("enqueue_many() takes no id=: one id cannot be several works'.")
    given = dict(options)
    on_commit = given.pop("on_commit", False)
    requests = list(require_requests(requests, "enqueue_many(works)"))
    given = timed(requests, given)
    if not together and not on_commit and are_plain(requests, given):
        return insert_drafts(Drafts(requests, clock.now(), ALONE, given))
    new_works = new_works_of(requests, given, on_commit)
    if on_commit:
        rows = [new_work.row for new_work in new_works]
        insert_after_commit(rows, partial(in_own_transaction, partial(insert_all, new_works, together)))
        root = new_works[0].row.id if together and new_works else None
        return [Handle(new_work.row.id, root or new_work.row.id) for new_work in new_works]
    return insert_all(new_works, together)


def insert_drafts(drafts: Drafts) -> list[Handle[Any, Any]]:
    """Insert works in one transaction; return their handles, also of those that were queued before.

    An input that cannot be stored takes back the works before it: the transaction at hand goes on.
    """
    ids = drafts.ids
    with atomic():
        unit_of_work = UnitOfWork(drafts.now)
        taken = unit_of_work.insert_from_templates(drafts)
        flush(unit_of_work)
        remember_uncommitted([id for id in ids if id not in taken])
        groups = groups_of(taken)
        return [Handle(id, groups.get(id, id), deduplicated=id in taken) for id in ids]


def insert_all(new_works: Sequence[NewWork], together: bool) -> list[Handle[Any, Any]]:
    """Insert works in one transaction."""
    if not new_works:
        return []
    if any(new_work.dedup or new_work.row.unit or new_work.waits for new_work in new_works):
        return in_own_transaction(partial(insert_all_here, new_works, together))
    with atomic():
        return insert_all_here(new_works, together)


def insert_all_here(new_works: Sequence[NewWork], together: bool) -> list[Handle[Any, Any]]:
    """Insert those works that are not there, within the transaction at hand."""
    unit_of_work = UnitOfWork(new_works[0].row.queued_at)
    placed = place_units(unit_of_work, new_works)
    there = {**originals(placed.fresh), **placed.there}
    fresh: Sequence[NewWork] = [new_work for new_work in placed.fresh if new_work.row.id not in there]
    if together:
        fresh = grouped(unit_of_work, fresh)
    taken = unit_of_work.insert(fresh)
    flush(unit_of_work)
    remember_uncommitted([new_work.row.id for new_work in fresh if new_work.row.id not in taken])
    start_after_commit(fresh, taken)
    new = {new_work.row.id: new_work.row.group for new_work in fresh if new_work.row.id not in taken}
    return handles_of([there.get(new_work.row.id, new_work.row.id) for new_work in new_works], new)


def grouped(unit_of_work: UnitOfWork, new_works: Sequence[NewWork]) -> Sequence[NewWork]:
    """Make one group of the works that are new; one that is alone needs none."""
    ids = list(dict.fromkeys(new_work.row.id for new_work in new_works))
    known = statuses_of(ids)
    fresh = [id for id in ids if id not in known]
    if len(fresh) < 2:
        return new_works
    root = fresh[0]
    unit_of_work.groups.founded_empty(root)
    return [
        new_work if new_work.row.id in known else new_work._replace(row=new_work.row._replace(group_id=root))
        for new_work in new_works
    ]


def handles_of(ids: Sequence[str], new: Mapping[str, str]) -> list[Handle[Any, Any]]:
    """Return a handle for each id; what was there before, or came earlier in the list, is told apart.

    ``new`` are the works just inserted, with their groups.
    """
    handles: list[Handle[Any, Any]] = []
    if len(new) == len(ids):
        return [Handle(id, group) for id, group in new.items()]
    groups = groups_of({id for id in ids if id not in new})
    for id in ids:
        handles.append(Handle(id, groups.get(id) or new.get(id, id), deduplicated=id in groups))
        groups.setdefault(id, new.get(id, id))
    return handles
