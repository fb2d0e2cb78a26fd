"""What a work has output becomes works of the type that its own names with ``then=``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_ayework import complete, completing, enqueue, retry
from django_ayework.models import Work
from django_ayework.testing import drain, enqueued, time_travel
from tests.marks import on_sqlite
from tests.outputs.works import RAN, answer, broken, call, given, plain, strict, units

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
