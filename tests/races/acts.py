"""What a rival in a process of its own can do, with all that need not race done before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_ayework import Dedup, WorkRequest, cancel, complete, dependency, enqueue, retry
from django_ayework.flow.settle import Report
from django_ayework.store.rows import WorkRow, find_row
from tests.races.rivals import kill, succeed
from tests.races.works import step


def prepared(name: str, *ids: str) -> Callable[[], Any]:
    """Return the act of this name: claimed rows are read, requests built."""
    return MAKERS[name](*ids)


def settling(settle: Callable[..., Report], ids: tuple[str, ...]) -> Callable[[], list[str]]:
    """Settle claimed works; tell which of them moved."""
    rows = [claimed(id) for id in ids]
    return lambda: sorted(settle(*rows).moved)


def claimed(id: str) -> WorkRow:
    row = find_row(id)
    assert row is not None
    return row


def queueing(request: WorkRequest[Any, Any], **options: Any) -> Callable[[], tuple[str, bool]]:
    """Queue a work; tell its id, and whether it is another's."""

    def act() -> tuple[str, bool]:
        handle = enqueue(request, **options)
        return handle.id, handle.deduplicated

    return act


def acting(function: Callable[[str], object], id: str) -> Callable[[], str]:
    """Act by hand; tell the id."""

    def act() -> str:
        function(id)
        return id

    return act


MAKERS: dict[str, Callable[..., Callable[[], Any]]] = {
    "succeed": lambda *ids: settling(succeed, ids),
    "kill": lambda *ids: settling(kill, ids),
    "cancel": lambda id: acting(cancel, id),
    "complete": lambda id: acting(complete, id),
    "retry": lambda id: acting(retry, id),
    "queue once": lambda key: queueing(step(), dedup=Dedup(key)),
    "queue blocked": lambda *ids: queueing(step(), blockers=ids),
    "queue a gate": lambda *ids: queueing(dependency(ids, [step()])),
}
