"""Works that are there already: the same id or the same dedup key."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

from django_ayework.define.ids import new_id
from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import InvalidWorkId
from django_ayework.flow.new_works import NewWork
from django_ayework.flow.payloads import codec_of
from django_ayework.rules.durations import seconds
from django_ayework.rules.identity import Dedup
from django_ayework.store.clock import clock
from django_ayework.store.identity import Search, newest_matches
from django_ayework.store.locks import lock_keys
from django_ayework.store.rows import WorkRow, find_rows, statuses_of

# --- taken ---
# Works whose id exists already: queued before, or another work that has the same id.

logger = logging.getLogger("django_ayework")


def leave_taken(rows: Sequence[WorkRow], promised: bool = False) -> None:
    """Leave works as they are that were queued before, and log that.

    Raises InvalidWorkId when one of these rows is another work than the one that exists. Ids of ours are
    never made twice; those of ``AYEWORK["ID"]`` may be, and the work would be lost unnoticed. Works that a
    gate has ``promised`` are not compared: an error would undo the end of the work that opened the gate.
    """
    if not rows:
        return
    ids = sorted(row.id for row in rows)
    if not promised and new_id.custom() is not None:
        known = find_rows(ids)
        require_same((row, known[row.id]) for row in rows if row.id in known)
    logger.info("Works that exist already were not queued again: %s", ", ".join(ids))


def one_per_id(new_works: Sequence[NewWork], promised: bool = False) -> list[NewWork]:
    """Return one of those that have the same id. Raises InvalidWorkId as leave_taken() does."""
    distinct = {new_work.row.id: new_work for new_work in new_works}
    if len(distinct) < len(new_works) and not promised:
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
            )


def is_same(new: WorkRow, known: WorkRow) -> bool:
    """Tell whether a row has the type and the input of another one.

    A codec of the project's own may encode one value as several texts.
    """
    if new.type != known.type or new.input == known.input:
        return new.type == known.type
    if new.type == GATE_TYPE:
        return False
    codec = codec_of(registry.find(new.type))
    try:
        return bool(codec.decode(new.input) == codec.decode(known.input))
    except Exception:  # a codec of the project's own may raise anything
        return False


# --- dedup ---
# Deduplication: which works of a batch are there already.
#
# Two enqueuers of one key must not both find nothing. So each first locks the key until its transaction
# ends,
# and looks only in a later statement, which sees what the one before has committed.

#: Longer than any sensible transaction: pruning passes over a row that is locked, but need not meet one.
LOCKS_KEPT = timedelta(days=1)


def require_dedup_fits(new_work: NewWork, on_commit: bool) -> None:
    """Raise TypeError where the caller would be promised an id that a match makes void."""
    if new_work.dedup is None:
        return
    if new_work.gate is not None:
        raise TypeError("a gate takes no dedup=: the works it releases are promised by their ids.")
    if on_commit:
        raise TypeError(
            f"{new_work.row.type!r} has dedup=, which does not go with on_commit=True: "
            "whether there is a match shows only after the commit. "
            "Use transaction.on_commit(lambda: enqueue(..., dedup=...))."
        )


def originals(new_works: Sequence[NewWork]) -> dict[str, str]:
    """Return the works of these that are not to be queued: by id, the id of the work that is there.

    Must run in the transaction that inserts the others.
    """
    keyed = {new_work.row.id: new_work for new_work in new_works if new_work.dedup is not None}
    if not keyed:
        return {}
    now = clock.now()
    lock_keys({("dedup", *pair_of(new_work)) for new_work in keyed.values()}, now + LOCKS_KEPT)
    stored = stored_matches(list(keyed.values()), now)
    known = known_among(keyed)
    found: dict[str, str] = {}
    fresh: dict[tuple[str, str], list[str]] = defaultdict(list)
    for id, new_work in keyed.items():
        earlier = newest_allowed(fresh[pair_of(new_work)], new_work)
        match = earlier or stored.get(id)
        if match is not None:
            found[id] = match
        elif id not in known:
            fresh[pair_of(new_work)].append(id)
    return found


def pair_of(new_work: NewWork) -> tuple[str, str]:
    """Return the type and key within which works are the same."""
    return new_work.row.type, dedup_of(new_work).key


def dedup_of(new_work: NewWork) -> Dedup:
    """Return how a birth is deduplicated, which must have a key."""
    return cast(Dedup, new_work.dedup)


def stored_matches(new_works: Sequence[NewWork], now: datetime) -> dict[str, str]:
    """Return by id what the database has; works that look for the same share a statement."""
    alike: dict[Search, list[NewWork]] = defaultdict(list)
    for new_work in new_works:
        alike[search_of(new_work, now)].append(new_work)
    found: dict[str, str] = {}
    for search, some in alike.items():
        by_key = newest_matches(search, sorted({dedup_of(new_work).key for new_work in some}))
        for new_work in some:
            if dedup_of(new_work).key in by_key:
                found[new_work.row.id] = by_key[dedup_of(new_work).key]
    return found


def search_of(new_work: NewWork, now: datetime) -> Search:
    """Return what must hold of a match."""
    dedup = dedup_of(new_work)
    since = None if dedup.window is None else start_of_window(now, seconds(dedup.window, "window"))
    return Search(new_work.row.type, dedup.scope, since, excluded(dedup))


def start_of_window(now: datetime, window: float) -> datetime | None:
    """Return since when works count; None when the window is longer than time."""
    try:
        return now - timedelta(seconds=window)
    except OverflowError:
        return None


def excluded(dedup: Dedup) -> tuple[str, ...]:
    """Return the ids to pass over, which the Dedup made of what it was given."""
    return cast("tuple[str, ...]", dedup.exclude)


def newest_allowed(ids: Sequence[str], new_work: NewWork) -> str | None:
    """Return the newest of the same batch that is not excluded: none has ended, none is out of a window."""
    passed_over = excluded(dedup_of(new_work))
    return next((id for id in reversed(ids) if id not in passed_over), None)


def known_among(keyed: Mapping[str, NewWork]) -> set[str]:
    """Return the ids queued before, which no other of the batch may take for new; asked only if one could."""
    pairs = Counter(map(pair_of, keyed.values()))
    shared = [id for id, new_work in keyed.items() if pairs[pair_of(new_work)] > 1]
    return set(statuses_of(shared))
