"""What a work has output becomes works of the type that its own names with ``then=``."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from django_ayework import Status, complete, completing, enqueue, get_handle, retry
from django_ayework.models import Work
from django_ayework.testing import drain, enqueued, time_travel
from tests.outputs.works import RAN, answer, broken, call, given, plain, strict, units


def test_a_mapping_makes_a_work_of_each_unit_with_its_input():
    enqueue(call(units={"b": {"size": 2}, "a": {"size": 1}}))
    drain()
    assert RAN == [("out.fetch", "a", {"size": 1}), ("out.fetch", "b", {"size": 2})]


def test_a_list_makes_works_without_input():
    enqueue(call(units=["b", "a"]))
    drain()
    assert RAN == [("out.fetch", "a", {}), ("out.fetch", "b", {})]


def test_the_three_forms_give_input_priority_and_delay():
    output = [
        ["a"],
        ["b", {"k": "v"}],
        ["c", {}, {"priority": 10}],
        ["d", {}, {"delay": 90}],
        ["e", {}, {}, 20.0],
    ]
    enqueue(call(units=output))
    drain(limit=1)
    states = {state.unit: state for state in enqueued("out.fetch")}
    assert {unit: state.priority for unit, state in states.items()} == {"b": 0, "c": 10, "d": 0, "e": 20}
    assert {unit: state.status for unit, state in states.items() if state.status != "pending"} == {
        "d": "scheduled"
    }
    wait = states["d"].start_at - states["d"].queued_at
    assert wait.total_seconds() == 90
    drain()
    assert RAN == [("out.fetch", "e", {}), ("out.fetch", "c", {}), ("out.fetch", "b", {"k": "v"})]


def test_works_go_by_priority_then_unit_and_a_delayed_one_competes_once_it_is_due():
    output = [
        ["first", {}, {"priority": 20}],
        ["second", {}, {}, 10],
        ["delayed", {}, {"delay": 90}],
        "third",
    ]
    enqueue(call(units=output))
    drain(limit=3)
    assert units() == ["first", "second"]
    time_travel(90)
    drain()
    assert units() == ["first", "second", "delayed", "third"]


class TestEffectiveData:
    def test_the_output_of_a_returned_mapping(self):
        enqueue(answer(data={"output": ["a"], "count": 1}))
        drain()
        assert units() == ["a"]

    def test_a_returned_mapping_without_output_says_that_there_is_none(self, caplog):
        enqueue(answer(data={"count": 1}, output=["in the input"], called=["called for"]))
        drain()
        assert units() == []
        assert "what ctx.output gave does not count" in caplog.text

    def test_what_was_called_for_counts_over_the_input(self):
        enqueue(answer(data=7, output=["in the input"], called=["called for"]))
        drain()
        assert units() == ["called for"]

    def test_the_output_of_the_input_where_there_is_no_other(self):
        enqueue(given(output={"x": {"size": 3}}))
        drain()
        assert RAN[0] == ("out.fetch", "x", {"size": 3})

    def test_no_output_anywhere_makes_nothing(self):
        enqueue(given())
        enqueue(answer(data=None))
        drain()
        assert RAN == []

    def test_an_output_travels_down_a_line_of_types(self):
        enqueue(given(output={"x": {"output": {"y": {"size": 1}}}}))
        drain()
        assert RAN[-1] == ("out.store", "y", {"size": 1})


def test_a_failed_attempt_outputs_nothing():
    handle = enqueue(broken(units=["a"]))
    drain(raises=False)
    time_travel(3600)
    drain(raises=False)
    assert get_handle(handle.id).state().status != Status.SUCCESS
    assert enqueued("out.fetch") == []


class TestBadOutput:
    @pytest.mark.parametrize("output", [7, "text", {"a": "no mapping"}])
    def test_it_never_fails_the_work_and_is_logged(self, output, caplog):
        handle = enqueue(call(units=output))
        drain()
        assert handle.state().status == Status.SUCCESS
        assert units() == []
        assert (
            f"Of the output of work {handle.id} (out.call) for out.fetch, 1 could not be queued"
            in caplog.text
        )
        assert "expected a" in caplog.text

    def test_bad_elements_are_dropped_and_the_good_ones_queued(self, caplog):
        enqueue(call(units=["a", 7, ["b"], "c"]))
        drain()
        assert units() == ["a", "c"]
        assert "2 could not be queued" in caplog.text

    def test_an_input_that_does_not_fit_the_handler_drops_that_unit(self, caplog):
        enqueue(strict(units={"good": {"size": 1}, "bad": {"colour": "red"}}))
        drain()
        assert RAN == [("out.store", "good", {"size": 1})]
        assert "'bad': TypeError" in caplog.text
        assert "colour" in caplog.text

    def test_an_input_that_cannot_be_stored_drops_that_unit(self, caplog):
        handle = enqueue(given(output=None))
        with completing(handle.id) as ctx:
            ctx.output({"good": {"x": 1}, "bad": {"x": object()}})
            ctx.void()
        drain()
        assert units() == ["good"]
        assert "'bad': NotEncodable" in caplog.text

    def test_a_type_that_is_not_there_is_told_of(self, caplog, monkeypatch):
        monkeypatch.setattr(plain, "settings", replace(plain.settings, then="out.nowhere"))
        handle = enqueue(plain(units=["a"]))
        drain()
        assert handle.state().status == Status.SUCCESS
        assert "then='out.nowhere' names no type" in caplog.text

    def test_an_output_of_a_type_without_then_is_told_of(self, caplog):
        handle = enqueue(plain(units=["a"]))
        drain()
        assert handle.state().status == Status.SUCCESS
        assert "'out.plain' has no then=" in caplog.text

    def test_of_many_reasons_the_first_are_told(self, caplog):
        enqueue(call(units=[7] * 30))
        drain()
        assert "30 could not be queued" in caplog.text
        assert caplog.text.count("got: 7") == 10


def test_completing_without_a_worker_outputs_too():
    handle = enqueue(given(output=["from the input"]), delay=60)
    complete(handle.id)
    assert [state.unit for state in enqueued("out.fetch")] == ["from the input"]
    other = enqueue(given(output=["from the input"]), delay=60)
    complete(other.id, {"output": ["from the result"]})
    assert {state.unit for state in enqueued("out.fetch")} == {"from the input", "from the result"}


def test_outputs_belong_to_the_group_of_the_work_that_gave_them():
    handle = enqueue(call(units=["a", "b"]))
    drain(limit=1)
    works = enqueued("out.fetch")
    assert {state.group_id for state in works} == {handle.id}
    assert {state.parent for state in works} == {handle.id}
    drain()
    assert handle.group() is None


def test_a_work_retried_after_death_outputs_once_it_succeeds():
    handle = enqueue(broken(units=["a"]))
    drain(raises=False)
    time_travel(3600)
    drain(raises=False)
    time_travel(3600)
    drain(raises=False)
    assert handle.state().status == Status.DEAD
    retry(handle.id)
    complete(handle.id, {"output": ["late"]})
    drain()
    assert units() == ["late"]


def test_thousands_of_units_take_a_bounded_number_of_statements(django_assert_max_num_queries):
    handle = enqueue(given())
    with django_assert_max_num_queries(40), completing(handle.id) as ctx:
        ctx.output([f"page/{number}" for number in range(2000)])
        ctx.void()
    assert Work.objects.filter(type="out.fetch").count() == 2000


def test_of_a_good_output_nothing_is_logged(caplog):
    caplog.set_level(logging.WARNING)
    enqueue(call(units=["a"]))
    drain()
    assert caplog.text == ""
