"""Works that have yet to run, page by page, without locks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import chunked, matching, rows
from django_ayework.store.selection import WINDOW, selection_of

#: Inputs that are in memory at a time. An input has up to ``AYEWORK["MAX_PAYLOAD"]`` characters.
INPUTS = 250


class StoredWork(NamedTuple):
    """What decides whether a work can run."""

    id: str
    type: str
    queue: str
    status: str
    input: str


def stored_works(statuses: Collection[Status], until: datetime) -> Iterator[list[StoredWork]]:
    """Yield the works of these statuses that were queued until a moment, in that order, a few at a time.

    Each statement reads at most ``WINDOW`` entries of an index. A list may be empty: other works were passed
    over. Works that have changed their status meanwhile are left out.
    """
    selection, place = selection_of({}, statuses, until), None
    allowed = frozenset(map(str, statuses))
    while True:
        page = selection.page(place, WINDOW)
        for ids in chunked(page.ids, INPUTS):
            stored = matching(rows(Work).all(), "id", ids, *StoredWork._fields)
            found = {work.id: work for work in map(StoredWork._make, stored)}
            yield [found[id] for id in ids if id in found and found[id].status in allowed]
        if not page.ids:
            yield []
        if (place := page.next) is None:
            return
