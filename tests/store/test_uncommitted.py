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
from tests.store.plans import entries_read, plans_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("postgresql", "mysql")]
MANY = 300


@pytest.fixture(autouse=True)
def searches_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search counts as one that has passed over many works."""
    monkeypatch.setattr(claims, "SLOW", 0.0)
    monkeypatch.setattr(claims, "REMEMBERED", 60.0)
    claims.places.clear()


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


def test_a_work_before_the_place_is_found_when_nothing_stands_behind_it():
    with queued_and_not_committed(priority=9):
        with queued_and_not_committed(priority=5) as before:
            assert claimed() == []
            behind = queued()
            assert claimed() == [behind]
        assert claimed() == sorted(before)[:8]


@pytest.mark.vendors("mysql")
def test_a_claim_begins_behind_them_once_it_has_passed_over_them():
    with queued_and_not_committed():
        queued()
        assert len(claimed()) == 1
        queued()
        plans = plans_of(claimed)
        assert not any("filesort" in plan or "w ALL" in plan for plan in plans), plans
        queued()
        [place] = claims.places.values()
        params = ("default", add.name, *place.params, 8)
        assert "range ayework_lane" in plans_of(lambda: claims.fetch(claims.LOCK_LANE_FROM, params))[0]
        assert entries_read(lambda: claims.fetch(claims.LOCK_LANE_FROM, params)) < 20
        assert entries_read(claimed) < MANY
