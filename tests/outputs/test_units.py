"""Of each type there is one live work per unit."""

from __future__ import annotations

import pytest

from django_ayework import Dedup, cancel, complete, dependency, enqueue, enqueue_many, retry, work
from django_ayework.errors import InvalidOption, NotRetryable
from django_ayework.flow.notify import due_works
from django_ayework.models import Work
from django_ayework.rules.notifications import Due
from django_ayework.testing import drain, enqueued, now, perform, time_travel
from tests.marks import on_sqlite
from tests.outputs.works import RAN, call, fetch, given, store
from tests.races.rivals import claim_all, succeed


@work(name="out.keyed", options=lambda key: {"unit": key})
def keyed(key: str = "k") -> None: ...


def live() -> list[tuple]:
    return sorted((state.unit, state.status) for state in enqueued("out.fetch") if state.ended_at is None)


def put(size: int, **options):
    return enqueue(fetch(size=size), unit="z", **options)


def test_a_waiting_work_of_the_unit_takes_over_the_input_and_an_ended_one_does_not():
    first, second = put(1), put(2, priority=5)
    assert (second.id, second.deduplicated, first.deduplicated) == (first.id, True, False)
    drain()
    assert RAN == [("out.fetch", "z", {"size": 2})]
    assert not put(3).deduplicated
    drain()
    assert Work.objects.filter(unit="z", status="success").count() == len(RAN) == 2


def test_an_output_updates_input_priority_and_start_of_a_waiting_unit():
    enqueue(call(units=[["z", {"size": 1}, {"delay": 90}]]))
    drain()
    assert live() == [("z", "scheduled")]
    enqueue(call(units=[["z", {"size": 2}, {"priority": 7}]]))
    drain(limit=1)
    [state] = enqueued("out.fetch")
    assert (state.status, state.priority, state.start_at <= now()) == ("pending", 7, True)
    complete(enqueue(given(output=[["z", {"size": 3}, {"delay": 60}]])).id)
    assert live() == [("z", "scheduled")]
    time_travel(60)
    drain()
    assert RAN == [("out.fetch", "z", {"size": 3})]


def test_a_running_unit_is_left_alone():
    handle = put(1)
    [row] = claim_all().values()
    again = put(2)
    assert (again.id, again.deduplicated) == (handle.id, True)
    assert Work.objects.get(id=handle.id).input == row.input
    assert succeed(row).moved == {handle.id}


@pytest.mark.parametrize("later", [50, 3600])
def test_a_new_input_does_not_expire_with_the_old_one(later):
    put(1, expires=60)
    time_travel(later)
    put(2)
    time_travel(20)
    drain()
    assert RAN == [("out.fetch", "z", {"size": 2})]


def test_names_are_compared_exactly_and_per_type_and_a_type_may_compute_them():
    handles = [enqueue(fetch(size=1), unit=name) for name in ["z", "Z", "ž", "z z"]]
    handles.append(enqueue(store(size=1), unit="z"))
    assert not any(handle.deduplicated for handle in handles)
    assert [enqueue(keyed(key=key)).deduplicated for key in "aab"] == [False, True, False]


def test_within_one_batch_the_first_gives_the_id_and_the_last_the_rest():
    requests = [fetch(size=1), fetch(size=2), fetch(size=3)]
    handles = enqueue_many(requests, unit="z", together=True)
    assert [handle.deduplicated for handle in handles] == [False, True, True]
    assert {handle.id for handle in handles} == {requests[0].id}
    drain()
    assert RAN == [("out.fetch", "z", {"size": 3})]


def test_the_same_request_again_is_the_same_work():
    request = fetch(size=1)
    first, second = enqueue(request, unit="z"), enqueue(request, unit="z")
    assert (second.id, second.deduplicated) == (first.id, True)
    drain()
    assert enqueue(request, unit="z").deduplicated
    assert Work.objects.count() == 1


def test_a_unit_that_becomes_due_wakes_the_workers_of_this_process(django_capture_on_commit_callbacks):
    put(1, delay=3 * 3600)
    seen: list[Due] = []
    due_works.subscribe(seen.append)
    try:
        for options, woken in (({"delay": 2 * 3600}, []), ({}, [Due(frozenset({("default", "out.fetch")}))])):
            with django_capture_on_commit_callbacks(execute=True):
                put(2, **options)
            assert seen == woken
    finally:
        due_works.unsubscribe(seen.append)


def test_a_type_can_say_that_it_goes_by_unit_or_by_time():
    by_unit, by_time = (
        work(name=f"out.by_{order}", order=order)(lambda ctx: RAN.append((ctx.type, ctx.unit, {})))
        for order in ("unit", "time")
    )
    for name in ("b", "a"):
        enqueue(by_unit(), unit=name)
        enqueue(by_time(), unit=name)
    enqueue(by_unit())
    drain()
    assert [unit for type, unit, _ in RAN if type == "out.by_unit"] == [None, "a", "b"]
    assert [unit for type, unit, _ in RAN if type == "out.by_time"] == ["b", "a"]


def test_a_cancelled_unit_can_be_retried_unless_the_unit_has_another_live_work():
    handle = put(1)
    cancel(handle.id)
    twin = put(2)
    with pytest.raises(NotRetryable, match=f"to have no live work, but {twin.id} is pending"):
        retry(handle.id)
    drain()
    retry(handle.id)
    drain()
    assert RAN == [("out.fetch", "z", {"size": 2}), ("out.fetch", "z", {"size": 1})]


@on_sqlite
@pytest.mark.parametrize("unit", ["", "x" * 191, "a\x00b", "a ", 7, b"a"])
def test_an_impossible_name_is_refused(unit):
    with pytest.raises(InvalidOption, match="unit: expected a unit's name to"):
        enqueue(fetch(), unit=unit)
    assert Work.objects.count() == 0


@on_sqlite
@pytest.mark.parametrize("order", ["name", 7, True])
def test_another_order_is_refused(order):
    with pytest.raises(InvalidOption, match="expected order to be 'time' or 'unit'"):
        work(name="out.wrong", order=order)(lambda: None)


#: Calls with a unit that are refused, and what is said.
REFUSED = {
    "dedup": (lambda: put(1, dedup=Dedup("k")), "both unit= and dedup="),
    "blockers": (lambda: put(1, blockers=["x"]), "does not go with blockers="),
    "on_commit": (lambda: put(1, on_commit=True), "does not go with on_commit=True"),
    "released by a gate": (lambda: dependency(on=["x"], queue=[keyed()]), "takes no unit="),
    "gate": (lambda: enqueue(dependency(on=["x"], queue=[fetch()]), unit="z"), "a gate takes no unit="),
}


@on_sqlite
@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_a_unit_does_not_go_with(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@on_sqlite
def test_a_handler_queues_no_units():
    error = perform(work(name="out.queues_keyed")(lambda ctx: ctx.queue([keyed()]))()).error
    assert isinstance(error, TypeError)
    assert "takes no unit=" in str(error)
