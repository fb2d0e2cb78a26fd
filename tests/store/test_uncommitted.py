"""Claims beside works that a transaction of a caller has queued and not committed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection, transaction

from django_ayework import enqueue, enqueue_many
from django_ayework.store import claims
from django_ayework.store.clock import clock
from tests.app.works import add

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("postgresql", "mysql")]
MANY = 300


@contextmanager
def queued_and_not_committed(**options: object) -> Iterator[list[str]]:
    """Queue many works in a transaction of another thread, which commits at the end of the block."""
    done, over = threading.Event(), threading.Event()
    ids: list[str] = []

    def call() -> None:
        with transaction.atomic():
            ids.extend(handle.id for handle in enqueue_many([add(a=1, b=2) for _ in range(MANY)], **options))
            done.set()
            over.wait(60)
        connection.close()

    caller = threading.Thread(target=call)
    caller.start()
    try:
        assert done.wait(20)
        yield ids
    finally:
        over.set()
        caller.join(20)


def queued(**options: object) -> str:
    return enqueue(add(a=1, b=2), **options).id


def claimed(limit: int = 8, *types: str) -> list[str]:
    now = clock.now()
    caps = dict.fromkeys(types or (add.name,), limit)
    rows = claims.claim("default", caps, limit, "w", now, now + timedelta(minutes=1))
    return [row.id for row in rows]


@pytest.mark.parametrize("types", [(), (add.name, "shop.other")], ids=["a lane", "lanes"])
def test_works_behind_them_are_claimed_and_they_are_once_they_are_committed(types):
    with queued_and_not_committed() as ids:
        for _ in range(3):
            behind = [queued(), queued()]
            assert claimed(8, *types) == behind
        assert claimed(8, *types) == []
        last = queued()
    assert claimed(8, *types) == sorted(ids)[:8]
    assert claimed(MANY, *types) == [*sorted(ids)[8:], last]


def test_more_urgent_works_go_first_and_none_of_them_is_passed_over():
    with queued_and_not_committed():
        behind = [queued() for _ in range(9)]
        assert claimed(2) == behind[:2]
        urgent = [queued(priority=5) for _ in range(3)]
        assert claimed(5) == [*urgent, *behind[2:4]]
