"""Enqueueing: requests become rows in the caller's transaction.

There is one path: the options are checked, a request becomes a new work, and new works are inserted. A single
work that needs nothing but its row is one statement, without a transaction of its own; all others go through
a unit of work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import connections, transaction

from django_ayework.define.handles import C, G, R
from django_ayework.define.options import ENQUEUE_OPTIONS, check_flag, checked, combined
from django_ayework.define.requests import WorkRequest, require_requests
from django_ayework.define.types import WorkType, registry
from django_ayework.documentation import type_error
from django_ayework.errors import InvalidOption, InvalidWorkId, NotEnqueued, ends_process
from django_ayework.flow.events import Effects
from django_ayework.flow.gates import flush
from django_ayework.flow.handles import Handle
from django_ayework.flow.hooks import guarded, report
from django_ayework.flow.identity import find_originals, leave_existing, place_units, require_identity_fits
from django_ayework.flow.new_works import NewWork, build_new_works
from django_ayework.flow.payloads import arguments_for_people
from django_ayework.flow.uncommitted import remember_uncommitted
from django_ayework.flow.unit_of_work import UnitOfWork
from django_ayework.rules.identity import require_work_id
from django_ayework.store.database import in_own_transaction, in_transaction, is_manual, on_commit
from django_ayework.store.insert import insert_works
from django_ayework.store.rows import WorkRow, find_row, groups_of, statuses_of

#: Works that a message names.
NAMED = 10


def enqueue_one(request: WorkRequest[R, G, C], options: Mapping[str, Any]) -> Handle[R, G, C]:
    """Queue one request; return its handle, or that of the work that was queued before in its place."""
    given = dict(options)
    own_id = given.pop("id", None)
    if own_id is not None:
        request = replace(request, id=require_work_id(own_id))
    [handle] = enqueue_requests([request], given, own_id=own_id)
    return handle


def enqueue_all(
    requests: Iterable[WorkRequest[R, G, C]], options: Mapping[str, Any], together: bool
) -> list[Handle[R, G, C]]:
    """Queue requests, all or none; ``together`` makes them one group, whose id is the first one's."""
    if "id" in options:
        raise type_error("enqueue-arguments", "enqueue_many() takes no id=: an id belongs to one work.")
    return enqueue_requests(list(require_requests(requests, "enqueue_many(works)")), options, together)


def enqueue_requests(
    requests: Sequence[WorkRequest[Any, Any]],
    options: Mapping[str, Any],
    together: bool = False,
    own_id: str | None = None,
) -> list[Handle[Any, Any]]:
    """Queue requests with the same options, now or after the commit; return their handles in order.

    Everything that can be wrong with a request is found before any SQL. With ``own_id``, the id that the
    caller chose for the only work, a work of this id is an error.
    """
    given = dict(options)
    flag = given.pop("on_commit", None)
    on_commit = flag is not None and check_flag(flag, "on_commit")
    options = checked(given) if given else given
    new_works = build_new_works(requests, given=options)
    for request, new_work in zip(requests, new_works, strict=True):
        if not new_work.is_plain:
            require_identity_fits(new_work, on_commit)
        if new_work.skips_queue:
            require_immediate_start(request, options)
    if not on_commit:
        return insert(new_works, together, own_id)
    if own_id is not None and find_row(own_id) is not None:
        raise taken_id(own_id)  # the caller would not learn of it after the commit
    rows = [new_work.row for new_work in new_works]
    insert_after_commit(rows, partial(insert, new_works, together, own_id))
    return [Handle(request.id, requests[0].id if together else request.id) for request in requests]


def insert(new_works: Sequence[NewWork], together: bool, own_id: str | None) -> list[Handle[Any, Any]]:
    """Insert new works; one that waits for nothing and has no key or unit takes no locks."""
    if not new_works:
        return []
    if len(new_works) == 1 and new_works[0].is_plain:
        return [insert_plain(new_works[0], own_id)]
    return in_own_transaction(insert_all, new_works, together, own_id)


def insert_plain(new_work: NewWork, own_id: str | None) -> Handle[Any, Any]:
    """Insert a work by one statement, which needs no transaction of its own."""
    row = new_work.row
    if insert_works([row]):
        if own_id is not None:
            raise taken_id(own_id)
        leave_existing([row])
        known = find_row(row.id)
        return Handle(row.id, known.group if known else row.id, deduplicated=True)
    if in_transaction():
        remember_uncommitted([row.id])
    effects = Effects(row.queued_at)
    effects.queued([row])
    effects.release_on_commit()
    if new_work.skips_queue:
        start_after_commit([row])
    return Handle(row.id, row.id, chain_id=row.id)


def insert_all(new_works: Sequence[NewWork], together: bool, own_id: str | None) -> list[Handle[Any, Any]]:
    """Insert the works that do not exist yet, within the transaction at hand.

    Locks on dedup keys and units last until its end.
    """
    unit_of_work = UnitOfWork(new_works[0].row.queued_at)
    placed = place_units(unit_of_work.effects, new_works)
    existing = {**find_originals(placed.fresh), **placed.existing}
    fresh: Sequence[NewWork] = [new_work for new_work in placed.fresh if new_work.row.id not in existing]
    if together:
        fresh = in_one_group(unit_of_work, fresh)
    taken = unit_of_work.insert(fresh)
    if taken and own_id is not None:
        raise taken_id(own_id)
    flush(unit_of_work)
    fresh = [new_work for new_work in fresh if new_work.row.id not in taken]
    start_after_commit([new_work.row for new_work in fresh if new_work.skips_queue])
    inserted = {new_work.row.id: new_work.row for new_work in fresh}
    remember_uncommitted(inserted)
    return handles_of([existing.get(new_work.row.id, new_work.row.id) for new_work in new_works], inserted)


def in_one_group(unit_of_work: UnitOfWork, new_works: Sequence[NewWork]) -> Sequence[NewWork]:
    """Put the works that do not exist yet into one group; a single work needs none."""
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


def handles_of(ids: Sequence[str], inserted: Mapping[str, WorkRow]) -> list[Handle[Any, Any]]:
    """Return a handle for each id; works that existed, or come earlier in the list, count as deduplicated."""
    groups = groups_of({id for id in ids if id not in inserted})
    handles: list[Handle[Any, Any]] = []
    seen = set(groups)
    for id in ids:
        row = inserted.get(id)
        if row is None:
            handles.append(Handle(id, groups.get(id, id), deduplicated=id in seen))
        else:
            handles.append(Handle(id, row.group, deduplicated=id in seen, chain_id=id))
        seen.add(id)
    return handles


def taken_id(own_id: str) -> InvalidWorkId:
    """Return the error of an id that is in use."""
    return InvalidWorkId(
        f"expected id= to be a new id, but a work {own_id!r} exists.", id=own_id, code="id-taken"
    )


# After the commit


class InsertAfterCommit(partial[None]):
    """A callback of ``enqueue(on_commit=True)``. Its first call counts: assertions of tests call it early."""


def insert_after_commit(
    rows: Sequence[WorkRow], insert: Callable[[], object], passed: frozenset[str] = frozenset()
) -> None:
    """Insert these works once every transaction that is open in this thread has committed.

    The caller's rows may be in any database. A rollback of any of the transactions drops the works. Without a
    transaction they are inserted at once, and errors are raised. ``passed`` are databases that have
    committed.

    The commit of each is awaited from now on: one of them may be rolled back inside another that commits.
    """
    opened = open_transactions(passed)
    if not opened:
        insert()
    left = set(opened)

    def note_commit(alias: str) -> None:
        if alias in left:
            left.remove(alias)
            if not left:
                go_on(rows, insert, passed | opened)

    for alias in opened:
        transaction.on_commit(InsertAfterCommit(note_commit, alias), using=alias)


def go_on(rows: Sequence[WorkRow], insert: Callable[[], object], passed: frozenset[str]) -> None:
    """Go on after a commit; report an error, as Django would skip the callbacks that follow."""
    try:
        insert_after_commit(rows, insert, passed)
    except BaseException as error:
        if ends_process(error):
            raise
        report_not_enqueued(rows, error)


def open_transactions(passed: frozenset[str]) -> frozenset[str]:
    """Return the databases on which this thread is in a transaction whose commit Django will see."""
    return frozenset(
        connection.alias
        for connection in connections.all(initialized_only=True)
        if connection.in_atomic_block and not is_manual(connection) and connection.alias not in passed
    )


def report_not_enqueued(rows: Sequence[WorkRow], error: BaseException) -> None:
    """Report works that were not inserted, so that they can be enqueued again by hand."""
    names = [f"{row.id} ({row.type})" for row in rows[:NAMED]]
    if len(rows) > NAMED:
        names.append(f"{len(rows) - NAMED} more")
    message = (
        f"not enqueued after the commit, enqueue again: {', '.join(names)}: {type(error).__name__}: {error}"
    )
    failure = NotEnqueued(message, works=[(row.id, row.type) for row in rows])
    failure.__cause__ = error
    report(failure, "commit", "works with on_commit=True were lost")


class Providers:
    """The functions that make first attempts in this process, connected at start-up without an import.

    The row of a work that skips the queue is pending from the start, as any other. A worker may claim it
    first, and claims it whenever this process cannot start it. ``held_back`` leaves these works to workers,
    as tests do.
    """

    intake: Callable[[Sequence[WorkRow]], object] | None = None
    held_back = False


providers = Providers()


def require_immediate_start(request: WorkRequest[Any, Any], given: Mapping[str, Any]) -> None:
    """Raise InvalidOption for a work with ``skip_queue=True`` that cannot start at once in this process."""
    work_type = registry.find(request.type)
    if work_type is None or registry.batch(request.type) is not None:
        raise InvalidOption(
            f"expected skip_queue=True for works that are run one by one, got {request.type!r}, whose works "
            "wait for others; leave skip_queue out.",
            code="skip-queue-refused",
        )
    if work_type.settings.doer is not None:
        raise InvalidOption(
            f"expected skip_queue=True for works without a doer= of their own, got {request.type!r}: its "
            "doer limits works in workers only; leave one of the two out.",
            code="skip-queue-refused",
        )
    options: dict[str, Any] = {**combined(given, request.options)}
    for name in ("run_at", "delay", "blockers"):
        if options.get(name):
            raise InvalidOption(
                f"expected no {name}= for a work that skips the queue, as that starts at once, got: "
                f"{name}={options[name]!r} for {request.type!r}; leave it out, or enqueue the work with "
                "skip_queue=False.",
                code="skip-queue-refused",
            )


def start_after_commit(works: Sequence[WorkRow]) -> None:
    """Make the first attempts of these works in this process once they are committed.

    A rollback, of a savepoint too, drops them.
    """
    if works:
        on_commit(partial(hand_over, works))


def hand_over(works: Sequence[WorkRow]) -> None:
    """Start works that are committed; in a test, where ``drain`` calls this, they are not."""
    if providers.intake is not None and not providers.held_back and not in_transaction():
        guarded(providers.intake, works)


# Requests, given as such or by name


def request_of(work: WorkRequest[Any, Any] | str, input: Any) -> WorkRequest[Any, Any]:
    """Return a built request; a type name with its input is built now.

    Raises UnknownWorkType, suggesting the nearest name, and TypeError when the input does not fit.
    """
    if isinstance(work, WorkRequest) and input is None:
        return work
    if isinstance(work, str):
        build = registry.get(work).build
        return build(one_input(work, input) if registry.batch(work) else named_input(work, input))
    if isinstance(work, WorkType) and input is not None:
        raise type_error(
            "enqueue-arguments",
            f"expected enqueue(work) to have a built work, got the type {work!r} and its input; "
            f"call the type: enqueue({work.handler.__name__}(…)), or give its name: "
            f"enqueue({work.name!r}, {{…}}).",
        )
    if input is not None:
        shown = arguments_for_people(registry.find(getattr(work, "type", "")), input)
        raise type_error(
            "enqueue-arguments",
            f"expected the input only with a type name, got {shown!r} with the built work {work!r}.",
        )
    return next(iter(require_requests([work], "enqueue(work)")))


def refuse_arguments(name: str, options: Mapping[str, Any]) -> None:
    """Raise TypeError when inputs of a type came among the options, as in a call of the type."""
    inputs = registry.get(name).signature.parameters
    misplaced = [
        key for key in options if (key in inputs or key in ("args", "kwargs")) and key not in ENQUEUE_OPTIONS
    ]
    if misplaced:
        example = misplaced[0] if misplaced[0] in inputs else next(iter(inputs), "name")
        raise type_error(
            "enqueue-arguments",
            f"expected the input of {name!r} as a mapping, such as "
            f"enqueue({name!r}, {{{example!r}: …}}), got {', '.join(misplaced)} among the options.",
        )


def one_input(name: str, input: Any) -> Any:
    """Return the input given with the name of a batch type, of whatever kind."""
    if input is None:
        raise type_error(
            "enqueue-arguments",
            f"expected enqueue({name!r}, input) to have the one input of a batch's work, got none.",
        )
    return input


def named_input(name: str, input: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the input given with a name."""
    if input is not None and not isinstance(input, Mapping):
        raise type_error(
            "enqueue-arguments",
            f"expected the input of {name!r} as a mapping of names to values, "
            f"got: {arguments_for_people(registry.find(name), input)!r}.",
        )
    return input or {}
