"""Outputs of a work become works of the type that ``then=`` names, one for each unit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_ayework import Dedup, cancel, complete, completing, dependency, enqueue, enqueue_many, retry, work
from django_ayework.errors import InvalidOption, NotRetryable
from django_ayework.flow.notify import due_works
from django_ayework.models import Work
from django_ayework.rules.notifications import Due
from django_ayework.testing import drain, enqueued, now, perform, time_travel
from tests.marks import on_sqlite
from tests.outputs.works import RAN, answer, broken, call, fetch, given, plain, store, strict, units
from tests.races.rivals import claim_all, succeed

#: What is queued, and the unit and the input of each work of "out.fetch" that then runs.
EFFECTIVE = {
    "mapping": (lambda: call(units={"b": {"size": 2}, "a": {}}), [("a", {}), ("b", {"size": 2})]),
    "list": (lambda: call(units=["b", "a"]), [("a", {}), ("b", {})]),
    "returned": (lambda: answer(data={"output": ["a"], "count": 1}), [("a", {})]),
    "called, not input": (lambda: answer(data=7, output=["input"], called=["called"]), [("called", {})]),
    "input": (lambda: given(output={"x": {"size": 3}}), [("x", {"size": 3})]),
    "no output": (lambda: given(), []),
    "no data": (lambda: answer(data=None), []),
}


@on_sqlite
@pytest.mark.parametrize(("build", "ran"), EFFECTIVE.values(), ids=EFFECTIVE)
def test_each_unit_of_the_effective_output_becomes_a_work(build, ran, caplog):
    enqueue(build())
    drain()
    assert [("out.fetch", unit, input) for unit, input in ran] == RAN
    assert caplog.text == ""


def test_a_returned_mapping_without_output_says_that_there_is_none(caplog):
    enqueue(answer(data={"count": 1}, output=["in the input"], called=["called for"]))
    drain()
    assert units() == []
    assert "what ctx.output gave does not count" in caplog.text


def test_an_output_travels_down_a_line_of_types():
    enqueue(given(output={"x": {"output": {"y": {"size": 1}}}}))
    drain()
    assert RAN[-1] == ("out.store", "y", {"size": 1})


def test_the_forms_give_input_priority_and_delay_and_works_go_by_priority_then_unit():
    output = [["a"], "aa", ["b", {"k": "v"}], ["c", {}, {"priority": 10}], ["ab", {}, {"delay": 90}]]
    handle = enqueue(call(units=[*output, ["e", {}, {}, 20.0]]))
    drain(limit=1)
    states = {state.unit: state for state in enqueued("out.fetch")}
    assert {unit: (state.priority, str(state.status)) for unit, state in states.items()} == {
        "aa": (0, "pending"),
        "ab": (0, "scheduled"),
        "b": (0, "pending"),
        "c": (10, "pending"),
        "e": (20, "pending"),
    }
    assert {(state.group_id, state.parent) for state in states.values()} == {(handle.id, handle.id)}
    assert (states["ab"].start_at - states["ab"].queued_at).total_seconds() == 90
    drain(limit=2)
    assert units() == ["e", "c"]
    time_travel(90)
    drain()
    assert RAN[2:] == [("out.fetch", "aa", {}), ("out.fetch", "ab", {}), ("out.fetch", "b", {"k": "v"})]
    assert handle.group() is None


FAILED = "Of the output of work {id} (out.call) for out.fetch, 1 could not be queued"
#: A type, its output, the units that run all the same, and what is logged.
BAD = {
    "number": (call, 7, [], [FAILED, "expected a"]),
    "no mapping": (call, {"a": "no mapping"}, [], [FAILED, "expected a"]),
    "elements": (call, ["a", 7, ["b"], "c"], ["a", "c"], ["2 could not be queued"]),
    "many": (call, [7] * 30, [], ["30 could not be queued"]),
    "misfit": (strict, {"good": {"size": 1}, "bad": {"a": 1}}, ["good"], ["'bad': TypeError", "'a'"]),
    "no then": (plain, ["a"], [], ["'out.plain' has no then="]),
}


@on_sqlite
@pytest.mark.parametrize(("type_", "output", "ran", "logged"), BAD.values(), ids=BAD)
def test_bad_output_never_fails_the_work_and_is_logged(type_, output, ran, logged, caplog):
    handle = enqueue(type_(units=output))
    drain()
    assert (handle.state().status, units()) == ("success", ran)
    assert all(text.format(id=handle.id) in caplog.text for text in logged)
    if output == [7] * 30:
        assert caplog.text.count("got: 7") == 10, "the first are named"


def test_an_input_that_cannot_be_stored_drops_that_unit(caplog):
    handle = enqueue(given(output=None))
    with completing(handle.id) as ctx:
        ctx.output({"good": {"x": 1}, "bad": {"x": object()}})
        ctx.void()
    drain()
    assert units() == ["good"]
    assert "'bad': NotEncodable" in caplog.text


@on_sqlite
def test_a_target_type_that_does_not_exist_is_logged(caplog, monkeypatch):
    monkeypatch.setattr(plain, "settings", replace(plain.settings, then="out.nowhere"))
    handle = enqueue(plain(units=["a"]))
    drain()
    assert handle.state().status == "success"
    assert "then='out.nowhere' names no type" in caplog.text


def test_completing_without_a_worker_outputs_too():
    handle, other = (enqueue(given(output=["from the input"]), delay=60) for _ in range(2))
    complete(handle.id)
    assert [state.unit for state in enqueued("out.fetch")] == ["from the input"]
    complete(other.id, {"output": ["from the result"]})
    assert {state.unit for state in enqueued("out.fetch")} == {"from the input", "from the result"}


def test_a_failed_attempt_outputs_nothing_and_a_retried_work_once_it_succeeds():
    handle = enqueue(broken(units=["a"]))
    for _ in range(3):
        drain(raises=False)
        assert enqueued("out.fetch") == []
        time_travel(3600)
    assert handle.state().status == "dead"
    retry(handle.id)
    complete(handle.id, {"output": ["late"]})
    drain()
    assert units() == ["late"]


def test_a_thousand_units_take_a_bounded_number_of_statements(django_assert_max_num_queries):
    handle = enqueue(given())
    with django_assert_max_num_queries(40), completing(handle.id) as ctx:
        ctx.output([f"page/{number}" for number in range(1000)])
        ctx.void()
    assert Work.objects.filter(type="out.fetch").count() == 1000


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
