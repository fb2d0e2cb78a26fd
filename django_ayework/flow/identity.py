"""Which new works exist already: by id, by dedup key, or by unit.

Two transactions that bring the same key or unit must not both find nothing. So each first locks the key or
the unit until its end, all in one order, and searches only in a later statement, which sees what the other
one has committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias, cast

from django_ayework.define.requests import GATE_TYPE, providers
from django_ayework.define.types import registry
from django_ayework.documentation import type_error
from django_ayework.errors import InvalidWorkId, NotRetryable
from django_ayework.flow.events import Effects
from django_ayework.flow.new_works import NewWork
from django_ayework.flow.payloads import codec_of
from django_ayework.logs import logger
from django_ayework.rules.durations import seconds
from django_ayework.rules.identity import Dedup
from django_ayework.rules.states import Status
from django_ayework.store import transitions
from django_ayework.store.database import clock
from django_ayework.store.entries import Search, find_live_units, lock_keys, lock_live_units, newest_matches
from django_ayework.store.rows import WorkRow, find_rows, statuses_of

#: How long the row of a key that is locked is kept, longer than any sensible transaction.
LOCKS_KEPT = timedelta(days=1)

#: A type, and a dedup key or a unit of it.
Pair: TypeAlias = tuple[str, str]


def require_identity_fits(new_work: NewWork, on_commit: bool) -> None:
    """Raise TypeError where the caller relies on an id that a key or a unit may make void."""
    name = "dedup" if new_work.dedup is not None else "unit" if new_work.row.unit is not None else None
    if name is None:
        return
    type = new_work.row.type
    if new_work.gate is not None and name == "dedup":
        raise type_error(
            "options-exclude-each-other",
            "a gate takes no dedup=: the ids of the works that it releases are fixed.",
        )
    if new_work.gate is not None:
        raise type_error(
            "options-exclude-each-other", "a gate takes no unit=: give it to the works that it releases."
        )
    if new_work.blockers and name == "unit":
        raise type_error(
            "options-exclude-each-other",
            f"{type!r} has unit=, which does not go with blockers=: if a work of the unit waits already, it "
            "gets the new input, and would not wait for them. Enqueue it once the blockers have succeeded.",
        )
    if on_commit:
        matter = "there is a match" if name == "dedup" else "the unit has a work"
        raise type_error(
            "options-exclude-each-other",
            f"{type!r} has {name}=, which does not go with on_commit=True: whether {matter} shows only "
            f"after the commit. Use transaction.on_commit(lambda: enqueue(..., {name}=...)).",
        )
    if new_work.dedup is not None and new_work.row.unit is not None:
        raise type_error(
            "options-exclude-each-other",
            f"{type!r} has both unit= and dedup=, and each may find another work; give one of them.",
        )


# By id


def leave_existing(rows: Sequence[WorkRow], released: bool = False) -> None:
    """Log works that were queued before, which stay as they are.

    Raises InvalidWorkId when one of these rows is another work than the one that exists. Built-in ids are
    never made twice; those of ``AYEWORK["ID"]`` may be, and the work would be lost unnoticed. Works that a
    gate has ``released`` are not compared: an error would undo the settlement that opened the gate.
    """
    ids = sorted(row.id for row in rows)
    if not released and providers.id_maker() is not None:
        known = find_rows(ids)
        require_same((row, known[row.id]) for row in rows if row.id in known)
    logger.info("Works that exist already were not queued again: %s", ", ".join(ids))


def one_per_id(new_works: Sequence[NewWork], released: bool) -> list[NewWork]:
    """Return one of those that have the same id. Raises InvalidWorkId as leave_existing() does."""
    distinct = {new_work.row.id: new_work for new_work in new_works}
    if len(distinct) < len(new_works) and not released:
        require_same((new_work.row, distinct[new_work.row.id].row) for new_work in new_works)
    return list(distinct.values())


def require_same(pairs: Iterable[tuple[WorkRow, WorkRow]]) -> None:
    """Raise InvalidWorkId for a new row whose id another work has."""
    for new, known in pairs:
        if not is_same(new, known):
            other = "another input" if known.type == new.type else f"the type {known.type!r}"
            raise InvalidWorkId(
                f"expected AYEWORK['ID'] to make an id for {new.type!r} that no other work has, but a work "
                f"{known.id!r} exists, of {other}. Correct the function, then enqueue the work again.",
                id=known.id,
                code="id-taken",
            )


def is_same(new: WorkRow, known: WorkRow) -> bool:
    """Tell whether two rows have the same type and input; a custom codec may write one input in two ways."""
    if new.type != known.type or new.input == known.input:
        return new.type == known.type
    if new.type == GATE_TYPE:
        return False
    codec = codec_of(registry.find(new.type))
    try:
        return bool(codec.decode(new.input) == codec.decode(known.input))
    except Exception:  # a custom codec may raise anything
        return False


# By dedup key


def find_originals(new_works: Sequence[NewWork]) -> dict[str, str]:
    """Lock the dedup keys of new works; return the ids of matches, by id of the works not to be queued.

    Must run in the transaction that inserts the others.
    """
    keyed = {
        new_work.row.id: (new_work.row.type, new_work.dedup)
        for new_work in new_works
        if new_work.dedup is not None
    }
    if not keyed:
        return {}
    now = clock.now()
    pairs: dict[str, Pair] = {id: (type, dedup.key) for id, (type, dedup) in keyed.items()}
    lock_keys({("dedup", *pair) for pair in pairs.values()}, now + LOCKS_KEPT)
    stored = stored_matches(keyed, now)
    # Works of the list that have a key in common: one that exists already is not new for the others.
    shared = Counter(pairs.values())
    known = statuses_of(id for id, pair in pairs.items() if shared[pair] > 1)
    found: dict[str, str] = {}
    fresh: dict[Pair, list[str]] = defaultdict(list)
    for id, (_, dedup) in keyed.items():
        earlier = fresh[pairs[id]]  # none of these has ended, and none is out of a window
        newest = (other for other in reversed(earlier) if other not in excluded(dedup))
        match = next(newest, stored.get(id))
        if match is not None:
            found[id] = match
        elif id not in known:
            earlier.append(id)
    return found


def stored_matches(keyed: Mapping[str, tuple[str, Dedup]], now: datetime) -> dict[str, str]:
    """Return by id the matches in the database; works with the same search share a statement."""
    by_search: dict[Search, dict[str, str]] = defaultdict(dict)
    for id, (type, dedup) in keyed.items():
        by_search[search_of(type, dedup, now)][id] = dedup.key
    found: dict[str, str] = {}
    for search, keys in by_search.items():
        matches = newest_matches(search, sorted({*keys.values()}))
        found.update((id, matches[key]) for id, key in keys.items() if key in matches)
    return found


def search_of(type: str, dedup: Dedup, now: datetime) -> Search:
    """Return the conditions of a match. A window that is longer than time is none."""
    since = None
    if dedup.window is not None:
        try:
            since = now - timedelta(seconds=seconds(dedup.window, "window"))
        except OverflowError:
            since = None
    return Search(type, dedup.scope, since, excluded(dedup))


def excluded(dedup: Dedup) -> tuple[str, ...]:
    """Return the ids that are no match, as Dedup has normalised them."""
    return cast("tuple[str, ...]", dedup.exclude)


# By unit: of each type there is one live work per unit.


@dataclass(frozen=True, slots=True)
class Placed:
    """The works to insert, and, by id of the others, the id of the work that has their unit."""

    fresh: Sequence[NewWork]
    existing: Mapping[str, str]


def place_units(effects: Effects, new_works: Sequence[NewWork]) -> Placed:
    """Lock the units of new works, and find live works of them. A waiting one is given the new input.

    Of several new works of one unit the first gives the id and the last everything else.
    """
    keyed = [new_work for new_work in new_works if new_work.row.unit is not None]
    if not keyed:
        return Placed(new_works, {})
    newest = {unit_of(new_work.row): new_work for new_work in keyed}
    lock_units(newest, effects.now)
    live = lock_live_units(sorted(newest))
    give_new_inputs(effects, live, newest)
    ids = {unit_of(new_work.row): new_work.row.id for new_work in reversed(keyed)}
    ids.update((pair, row.id) for pair, row in live.items())
    fresh: list[NewWork] = []
    existing: dict[str, str] = {}
    for new_work in new_works:
        id, pair = new_work.row.id, unit_of(new_work.row)
        if new_work.row.unit is None:
            fresh.append(new_work)
        elif pair in live or ids[pair] != id:
            existing[id] = ids[pair]
        else:
            latest = newest[pair]
            fresh.append(latest._replace(row=latest.row._replace(id=id)))
    return Placed(fresh, existing)


def unit_of(row: WorkRow) -> Pair:
    """Return the type and unit of a work."""
    return row.type, row.unit or ""


def lock_units(pairs: Iterable[Pair], now: datetime) -> None:
    """Lock units until the end of the transaction."""
    lock_keys((("unit", *pair) for pair in pairs), now + LOCKS_KEPT)


def give_new_inputs(effects: Effects, live: Mapping[Pair, WorkRow], newest: Mapping[Pair, NewWork]) -> None:
    """Write the newest input, priority and start to works that wait; running ones keep theirs."""
    renewed: list[tuple[WorkRow, WorkRow]] = []
    for pair, row in sorted(live.items()):
        if row.status == Status.RUNNING:
            logger.info("The unit %r of %s is left alone, for work %s runs it.", row.unit, row.type, row.id)
        else:
            renewed.append((row, newest[pair].row))
    transitions.renew(renewed)
    for row, new in renewed:
        effects.awaits_worker(row._replace(status=new.status, run_at=new.run_at))


def require_free_unit(row: WorkRow, now: datetime) -> None:
    """Lock the unit of an ended work. Raises NotRetryable when a live work has this unit."""
    if row.unit is None:
        return
    pair = unit_of(row)
    lock_units([pair], now)
    live = find_live_units([pair]).get(pair)
    if live is not None:
        raise NotRetryable(
            f"expected the unit {row.unit!r} of {row.type!r} to have no live work, but {live.id} is "
            f"{live.status}; it does what a retry of {row.id} would do.",
            id=row.id,
            code="unit-has-a-live-work",
        )
