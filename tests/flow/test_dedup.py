"""Deduplication by key: what counts as there, and what becomes of the second one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Dedup, InvalidWorkId, aenqueue, dependency, enqueue
from django_ayework.errors import InvalidOption
from django_ayework.flow.maintenance import prune
from django_ayework.models import StoreEntry, Work
from django_ayework.rules.states import LIVE, Status
from django_ayework.store.clock import clock
from django_ayework.testing.factories import WorkFactory
from tests.app.models import Order
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db

KEY = Dedup("k")


def stored(status: str = "pending", age: float = 0, **columns: Any) -> str:
    """Store a work of the key; return its id."""
    queued_at = clock.now() - timedelta(seconds=age)
    return str(WorkFactory(status=status, dedup_key="k", queued_at=queued_at, **columns).id)


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("scope", ["incomplete", "any"])
@pytest.mark.parametrize("window", [None, 60, 7200])
@pytest.mark.parametrize("excluded", [False, True])
def test_what_counts_as_there(status: Status, scope: Any, window: float | None, excluded: bool) -> None:
    there = stored(status, age=3600)
    handle = enqueue(add(a=1, b=2), dedup=Dedup("k", scope, window, [there] if excluded else ()))
    counts = (scope == "any" or status in LIVE) and window != 60 and not excluded
    assert handle.deduplicated is counts
    assert (handle.id == there) is counts
    assert Work.objects.count() == (1 if counts else 2)


def test_the_handle_is_of_the_work_that_is_there_which_stays_as_it_was() -> None:
    first = enqueue(add(a=1, b=2), dedup=KEY, priority=1)
    before = Work.objects.values().get()
    second = enqueue(add(a=8, b=9), dedup=KEY, priority=5, queue="mail", delay=60)
    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert (second.id, second.group_id) == (first.id, first.group_id)
    assert Work.objects.values().get() == before


def test_the_handle_has_the_group_of_the_work_that_is_there() -> None:
    there = stored(group_id="family")
    assert enqueue(add(a=1, b=2), dedup=KEY).group_id == "family"
    assert Work.objects.get().id == there


def test_keys_differ_by_every_letter() -> None:
    keys = ["k", "K", "k2", "ḱ", "k k"]
    assert not any(enqueue(add(a=1, b=2), dedup=Dedup(key)).deduplicated for key in keys)
    assert sorted(Work.objects.values_list("dedup_key", flat=True)) == sorted(keys)


def test_each_type_has_keys_of_its_own() -> None:
    assert not enqueue(add(a=1, b=2), dedup=KEY).deduplicated
    assert not enqueue(fail(), dedup=KEY).deduplicated
    assert enqueue(fail(), dedup=KEY).deduplicated


def test_works_without_a_key_are_never_there() -> None:
    WorkFactory(dedup_key=None)
    assert not enqueue(add(a=1, b=2), dedup=KEY).deduplicated
    assert not enqueue(add(a=1, b=2)).deduplicated


@pytest.mark.parametrize("ages", [(10, 20, 30), (30, 20, 10), (20, 10, 30)])
def test_the_newest_match_wins(ages: tuple[int, ...]) -> None:
    by_age = {age: stored(age=age) for age in ages}
    assert enqueue(add(a=1, b=2), dedup=KEY).id == by_age[10]
    assert enqueue(add(a=1, b=2), dedup=Dedup("k", exclude=by_age[10])).id == by_age[20]


def test_a_newer_work_that_has_ended_does_not_hide_an_older_one_that_has_not() -> None:
    older, newer = stored(age=20), stored("success", age=10)
    assert enqueue(add(a=1, b=2), dedup=KEY).id == older
    assert enqueue(add(a=1, b=2), dedup=Dedup("k", "any")).id == newer


def test_once_it_has_ended_the_key_is_free_again(drain: Any) -> None:
    first = enqueue(add(a=1, b=2), dedup=KEY)
    drain()
    assert enqueue(add(a=1, b=2), dedup=Dedup("k", "any")).id == first.id
    assert not enqueue(add(a=1, b=2), dedup=KEY).deduplicated


@pytest.mark.parametrize("scope", ["incomplete", "any"])
def test_a_window_passes(scope: Any, time_travel: Any) -> None:
    dedup = Dedup("k", scope, window=timedelta(minutes=1))
    enqueue(add(a=1, b=2), dedup=dedup)
    time_travel(59)
    assert enqueue(add(a=1, b=2), dedup=dedup).deduplicated
    time_travel(2)
    assert not enqueue(add(a=1, b=2), dedup=dedup).deduplicated


def test_a_window_may_be_longer_than_time() -> None:
    there = stored(age=3600)
    assert enqueue(add(a=1, b=2), dedup=Dedup("k", window=1e13)).id == there


def test_an_excluded_handle_is_passed_over() -> None:
    first = enqueue(add(a=1, b=2), dedup=KEY)
    assert not enqueue(add(a=1, b=2), dedup=Dedup("k", exclude=[first])).deduplicated


def test_an_id_of_ones_own_is_used_only_when_nothing_is_there() -> None:
    assert enqueue(add(a=1, b=2), dedup=KEY, id="one").id == "one"
    assert enqueue(add(a=1, b=2), dedup=KEY, id="two").id == "one"
    assert enqueue(add(a=1, b=2), dedup=KEY, id="one").deduplicated
    with pytest.raises(InvalidWorkId):
        enqueue(add(a=1, b=2), dedup=Dedup("other"), id="one")


def test_a_request_twice_is_one_work_whatever_is_excluded() -> None:
    request = add(a=1, b=2)
    enqueue(request, dedup=KEY)
    again = enqueue(request, dedup=Dedup("k", exclude=[request.id]))
    assert (again.id, again.deduplicated) == (request.id, True)


def test_what_is_rolled_back_was_never_there() -> None:
    with transaction.atomic():
        enqueue(add(a=1, b=2), dedup=KEY)
        Order.objects.create(reference="gone")
        transaction.set_rollback(True)
    assert not enqueue(add(a=1, b=2), dedup=KEY).deduplicated
    assert Work.objects.count() == 1


def test_a_match_leaves_the_callers_transaction_alone() -> None:
    stored()
    with transaction.atomic():
        Order.objects.create(reference="kept")
        assert enqueue(add(a=1, b=2), dedup=KEY).deduplicated
    assert Order.objects.count() == 1


def test_only_a_new_work_is_told_of(events: Any, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        first = enqueue(add(a=1, b=2), dedup=KEY)
        enqueue(add(a=1, b=2), dedup=KEY)
    assert [(event.kind, event.id) for event in events] == [("queued", first.id)]


def test_a_plain_enqueue_is_still_one_statement() -> None:
    with CaptureQueriesContext(
        connection,
    ) as plain:
        enqueue(add(a=1, b=2))
    assert len(plain) == 1
    assert StoreEntry.objects.count() == 0


def test_the_key_is_locked_before_it_is_looked_for() -> None:
    enqueue(add(a=1, b=2), dedup=KEY)
    with CaptureQueriesContext(connection) as captured:
        enqueue(add(a=1, b=2), dedup=Dedup("other"))
    said = [query["sql"].split()[0] for query in captured if "SAVEPOINT" not in query["sql"]]
    assert said == ["INSERT", "SELECT", "INSERT"]


def test_locks_are_pruned_a_day_later(time_travel: Any) -> None:
    enqueue(add(a=1, b=2), dedup=KEY)
    prune()
    assert StoreEntry.objects.count() == 1
    time_travel(timedelta(days=1, seconds=1))
    prune()
    assert StoreEntry.objects.count() == 0
    assert enqueue(add(a=1, b=2), dedup=KEY).deduplicated


def test_what_is_no_dedup_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"expected dedup to be a Dedup\(...\), got: 'k'"):
        enqueue(add(a=1, b=2), dedup="k")  # type: ignore[arg-type]
    assert not enqueue(add(a=1, b=2), dedup=None).deduplicated


def test_a_deferred_insert_cannot_promise_its_id() -> None:
    with pytest.raises(TypeError, match="does not go with on_commit=True"):
        enqueue(add(a=1, b=2), dedup=KEY, on_commit=True)


def test_a_gate_takes_no_key() -> None:
    with pytest.raises(TypeError, match="a gate takes no dedup="):
        enqueue(dependency(["one"], [add(a=1, b=2)]), dedup=KEY)
    assert Work.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_the_async_twin_deduplicates_the_same() -> None:
    first = async_to_sync(aenqueue)(add(a=1, b=2), dedup=KEY)
    second = async_to_sync(aenqueue)("shop.add", {"a": 1, "b": 2}, dedup=KEY)
    assert (second.id, second.deduplicated) == (first.id, True)
