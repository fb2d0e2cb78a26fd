"""Of each type there is one live work per unit."""

from __future__ import annotations

import pytest

from django_ayework import (
    Dedup,
    NotRetryable,
    Status,
    cancel,
    complete,
    dependency,
    enqueue,
    enqueue_many,
    retry,
    work,
)
from django_ayework.errors import InvalidOption
from django_ayework.flow.notify import add_due_listener, remove_due_listener
from django_ayework.models import Work
from django_ayework.rules.notifications import Due
from django_ayework.testing import drain, enqueued, now, perform, time_travel
from tests.app.works import add
from tests.outputs.works import RAN, call, fetch, given, store, units
from tests.races.rivals import claim_all, succeed


def live() -> list[tuple]:
    return sorted((state.unit, state.status) for state in enqueued("out.fetch") if state.ended_at is None)


def test_an_ended_unit_is_queued_anew():
    enqueue(call(units=["z"]))
    enqueue(call(units=["z"]))
    drain(limit=2)
    drain()
    enqueue(call(units=["z"]))
    drain()
    assert units() == ["z", "z"]
    assert Work.objects.filter(unit="z", status="success").count() == 2


def test_a_waiting_unit_takes_over_input_priority_and_start():
    enqueue(call(units=[["z", {"size": 1}, {"delay": 90}]]))
    drain()
    assert live() == [("z", "scheduled")]
    enqueue(call(units=[["z", {"size": 2}, {"priority": 7}]]))
    drain(limit=1)
    [state] = enqueued("out.fetch")
    assert (state.status, state.priority, state.start_at <= now()) == ("pending", 7, True)
    drain()
    assert RAN == [("out.fetch", "z", {"size": 2})]


def test_a_waiting_unit_can_be_put_off():
    enqueue(fetch(size=1), unit="z")
    complete(enqueue(given(output=[["z", {"size": 2}, {"delay": 60}]])).id)
    assert live() == [("z", "scheduled")]
    time_travel(60)
    drain()
    assert RAN == [("out.fetch", "z", {"size": 2})]


def test_a_running_unit_is_left_alone():
    handle = enqueue(fetch(size=1), unit="z")
    [row] = claim_all().values()
    again = enqueue(fetch(size=2), unit="z")
    assert (again.id, again.deduplicated) == (handle.id, True)
    assert Work.objects.get(id=handle.id).input == row.input
    assert succeed(row).moved == {handle.id}


def test_a_blocked_unit_stays_blocked_and_takes_over_the_input():
    blocker = enqueue(add(a=1, b=2), delay=60)
    handle = enqueue(fetch(size=1), unit="z", blockers=[blocker])
    enqueue(fetch(size=2), unit="z", priority=3)
    state = handle.state()
    assert (state.status, state.priority) == (Status.BLOCKED, 3)
    time_travel(60)
    drain()
    assert RAN == [("out.fetch", "z", {"size": 2})]


class TestEnqueue:
    def test_a_waiting_work_of_the_unit_is_given_back_with_the_new_input(self):
        first = enqueue(fetch(size=1), unit="z")
        second = enqueue(fetch(size=2), unit="z", priority=5)
        assert (second.id, second.deduplicated, first.deduplicated) == (first.id, True, False)
        drain()
        assert RAN == [("out.fetch", "z", {"size": 2})]

    def test_units_are_those_of_their_type(self):
        enqueue(fetch(size=1), unit="z")
        assert not enqueue(store(size=1), unit="z").deduplicated

    def test_names_are_told_apart_by_case_and_accents(self):
        names = ["z", "Z", "ž", "z z"]
        handles = [enqueue(fetch(size=1), unit=name) for name in names]
        assert not any(handle.deduplicated for handle in handles)

    def test_within_one_batch_the_first_gives_the_id_and_the_last_the_rest(self):
        handles = enqueue_many([fetch(size=1), fetch(size=2), fetch(size=3)], unit="z", together=True)
        assert [handle.deduplicated for handle in handles] == [False, True, True]
        assert len({handle.id for handle in handles}) == 1
        drain()
        assert RAN == [("out.fetch", "z", {"size": 3})]

    def test_the_same_request_again_is_the_same_work(self):
        request = fetch(size=1)
        first, second = enqueue(request, unit="z"), enqueue(request, unit="z")
        assert (second.id, second.deduplicated) == (first.id, True)
        drain()
        assert enqueue(request, unit="z").deduplicated
        assert Work.objects.count() == 1

    @pytest.mark.parametrize("unit", ["", "x" * 191, "a\x00b", "a ", 7, b"a"])
    def test_an_impossible_name_is_refused(self, unit):
        with pytest.raises(InvalidOption, match="unit: expected a unit's name to"):
            enqueue(fetch(), unit=unit)
        assert Work.objects.count() == 0

    def test_it_does_not_go_with_dedup_or_on_commit(self):
        with pytest.raises(TypeError, match="both unit= and dedup="):
            enqueue(fetch(), unit="z", dedup=Dedup("k"))
        with pytest.raises(TypeError, match="does not go with on_commit=True"):
            enqueue(fetch(), unit="z", on_commit=True)

    def test_where_a_work_is_promised_by_its_id_it_is_refused(self):
        with pytest.raises(TypeError, match="takes no unit="):
            dependency(on=["x"], queue=[keyed()])
        with pytest.raises(TypeError, match="a gate takes no unit="):
            enqueue(dependency(on=["x"], queue=[fetch()]), unit="z")
        error = perform(queues_keyed()).error
        assert isinstance(error, TypeError)
        assert "takes no unit=" in str(error)

    def test_the_type_may_compute_it(self):
        assert not enqueue(keyed(key="a")).deduplicated
        assert enqueue(keyed(key="a")).deduplicated
        assert not enqueue(keyed(key="b")).deduplicated


@work(name="out.keyed", options=lambda key: {"unit": key})
def keyed(key: str = "k") -> None: ...


@work(name="out.queues_keyed")
def queues_keyed(ctx):
    return ctx.queue([keyed()])


class TestOrder:
    def test_a_target_of_then_goes_by_unit_whatever_its_age(self):
        for name in ("c", "b", "a"):
            enqueue(fetch(), unit=name)
        drain()
        assert units() == ["a", "b", "c"]

    def test_priority_goes_first(self):
        for name, priority in (("a", 0), ("b", 10), ("c", 0)):
            enqueue(fetch(), unit=name, priority=priority)
        drain()
        assert units() == ["b", "a", "c"]

    def test_a_type_can_say_that_it_goes_by_unit_or_by_time(self):
        for name in ("b", "a"):
            enqueue(by_unit(), unit=name)
            enqueue(by_time(), unit=name)
        drain()
        assert [unit for type, unit, _ in RAN if type == "out.by_unit"] == ["a", "b"]
        assert [unit for type, unit, _ in RAN if type == "out.by_time"] == ["b", "a"]

    def test_a_work_without_a_unit_goes_first_by_age(self):
        enqueue(by_unit(), unit="a")
        enqueue(by_unit())
        drain()
        assert units() == [None, "a"]

    @pytest.mark.parametrize("order", ["name", 7, True])
    def test_another_order_is_refused(self, order):
        with pytest.raises(InvalidOption, match="expected order to be 'time' or 'unit'"):
            work(name="out.wrong", order=order)(lambda: None)


@work(name="out.by_unit", order="unit")
def by_unit(ctx) -> None:
    RAN.append((ctx.type, ctx.unit, {}))


@work(name="out.by_time", order="time")
def by_time(ctx) -> None:
    RAN.append((ctx.type, ctx.unit, {}))


@work(name="out.to_time", then="out.by_time")
def to_time() -> None: ...


class TestRetry:
    def test_a_cancelled_unit_can_be_retried(self):
        handle = enqueue(fetch(size=1), unit="z")
        cancel(handle.id)
        retry(handle.id)
        drain()
        assert units() == ["z"]

    def test_not_while_its_unit_has_another_live_work(self):
        handle = enqueue(fetch(size=1), unit="z")
        cancel(handle.id)
        twin = enqueue(fetch(size=2), unit="z")
        with pytest.raises(NotRetryable, match=f"to have no live work, but {twin.id} is pending"):
            retry(handle.id)
        drain()
        retry(handle.id)
        drain()
        assert RAN == [("out.fetch", "z", {"size": 2}), ("out.fetch", "z", {"size": 1})]


def test_given_output_in_the_input_is_kept_by_the_work_that_takes_it_over():
    enqueue(given(output=[["z", {"size": 1}]]))
    enqueue(given(output=[["z", {"size": 2}]]))
    drain()
    assert RAN[-1] == ("out.fetch", "z", {"size": 2})


def test_a_unit_that_becomes_due_wakes_the_workers_of_this_process(django_capture_on_commit_callbacks):
    enqueue(fetch(size=1), unit="z", delay=3 * 3600)
    told: list[Due] = []
    add_due_listener(told.append)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            enqueue(fetch(size=2), unit="z", delay=2 * 3600)
        assert told == []
        with django_capture_on_commit_callbacks(execute=True):
            enqueue(fetch(size=2), unit="z")
        assert told == [Due(frozenset({("default", "out.fetch")}))]
    finally:
        remove_due_listener(told.append)
