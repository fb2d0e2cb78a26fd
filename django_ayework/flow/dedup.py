"""Deduplication: which works of a batch are there already.

Two enqueuers of one key must not both find nothing. So each first locks the key until its transaction ends,
and looks only in a later statement, which sees what the one before has committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

from django_ayework.flow.births import Birth
from django_ayework.rules.dedup import Dedup
from django_ayework.rules.durations import seconds
from django_ayework.store.clock import clock
from django_ayework.store.dedup import Search, newest_matches
from django_ayework.store.keys import lock_keys
from django_ayework.store.rows import statuses_of

#: Longer than any sensible transaction: pruning passes over a row that is locked, but need not meet one.
LOCKS_KEPT = timedelta(days=1)


def require_dedup_fits(birth: Birth, on_commit: bool) -> None:
    """Raise TypeError where the caller would be promised an id that a match makes void."""
    if birth.dedup is None:
        return
    if birth.gate is not None:
        raise TypeError("a gate takes no dedup=: the works it releases are promised by their ids.")
    if on_commit:
        raise TypeError(
            f"{birth.row.type!r} has dedup=, which does not go with on_commit=True: whether there is a match "
            "shows only after the commit. Use transaction.on_commit(lambda: enqueue(..., dedup=...))."
        )


def originals(births: Sequence[Birth]) -> dict[str, str]:
    """Return the works of these that are not to be queued: by id, the id of the work that is there.

    Must run in the transaction that inserts the others.
    """
    keyed = {birth.row.id: birth for birth in births if birth.dedup is not None}
    if not keyed:
        return {}
    now = clock.now()
    lock_keys({("dedup", *pair_of(birth)) for birth in keyed.values()}, now + LOCKS_KEPT)
    stored = stored_matches(list(keyed.values()), now)
    known = known_among(keyed)
    found: dict[str, str] = {}
    fresh: dict[tuple[str, str], list[str]] = defaultdict(list)
    for id, birth in keyed.items():
        earlier = newest_allowed(fresh[pair_of(birth)], birth)
        match = earlier or stored.get(id)
        if match is not None:
            found[id] = match
        elif id not in known:
            fresh[pair_of(birth)].append(id)
    return found


def pair_of(birth: Birth) -> tuple[str, str]:
    """Return the type and key within which works are the same."""
    return birth.row.type, dedup_of(birth).key


def dedup_of(birth: Birth) -> Dedup:
    """Return how a birth is deduplicated, which must have a key."""
    return cast(Dedup, birth.dedup)


def stored_matches(births: Sequence[Birth], now: datetime) -> dict[str, str]:
    """Return by id what the database has; works that look for the same share a statement."""
    alike: dict[Search, list[Birth]] = defaultdict(list)
    for birth in births:
        alike[search_of(birth, now)].append(birth)
    found: dict[str, str] = {}
    for search, some in alike.items():
        by_key = newest_matches(search, sorted({dedup_of(birth).key for birth in some}))
        for birth in some:
            if dedup_of(birth).key in by_key:
                found[birth.row.id] = by_key[dedup_of(birth).key]
    return found


def search_of(birth: Birth, now: datetime) -> Search:
    """Return what must hold of a match."""
    dedup = dedup_of(birth)
    since = None if dedup.window is None else start_of_window(now, seconds(dedup.window, "window"))
    return Search(birth.row.type, dedup.scope, since, excluded(dedup))


def start_of_window(now: datetime, window: float) -> datetime | None:
    """Return since when works count; None when the window is longer than time."""
    try:
        return now - timedelta(seconds=window)
    except OverflowError:
        return None


def excluded(dedup: Dedup) -> tuple[str, ...]:
    """Return the ids to pass over, which the Dedup made of what it was given."""
    return cast("tuple[str, ...]", dedup.exclude)


def newest_allowed(ids: Sequence[str], birth: Birth) -> str | None:
    """Return the newest of the same batch that is not excluded: none has ended, none is out of a window."""
    passed_over = excluded(dedup_of(birth))
    return next((id for id in reversed(ids) if id not in passed_over), None)


def known_among(keyed: Mapping[str, Birth]) -> set[str]:
    """Return the ids queued before, which no other of the batch may take for new; asked only if one could."""
    pairs = Counter(map(pair_of, keyed.values()))
    shared = [id for id, birth in keyed.items() if pairs[pair_of(birth)] > 1]
    return set(statuses_of(shared))
