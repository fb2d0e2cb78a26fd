"""Gates: works that wait for others and then queue some."""

from datetime import timedelta

import pytest

from django_ayework import Count, InvalidWorkId, dependency, get_handle
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import AyeworkError
from tests.define.declared import step


@pytest.fixture
def build():
    return step()


def test_a_gate_watches_requests_handles_and_ids_in_order(build):
    request = build()
    gate = dependency(on=[request, get_handle("h-1"), "order-17"], queue=[build()])

    assert gate.watched == (request.id, "h-1", "order-17")


def test_a_gate_is_a_request_of_a_reserved_type_with_an_id(build):
    gate = dependency(on=["a"], queue=[build()])

    assert gate.type == GATE_TYPE
    assert gate.type.startswith("@")
    assert gate.id
    assert dependency(on=[gate], queue=[]).watched == (gate.id,)  # so a gate can watch a gate


@pytest.mark.parametrize(
    "single", [lambda build: build(), lambda build: get_handle("h-1"), lambda build: "order-17"]
)
def test_a_single_thing_to_watch_needs_no_list(build, single):
    assert len(dependency(on=single(build), queue=[build()]).watched) == 1
    assert dependency(on="order-17", queue=[]).watched == ("order-17",)


def test_a_single_work_to_queue_needs_no_list(build):
    request = build()

    assert dependency(on=["a"], queue=request).releases == (request,)


def test_generators_will_do(build):
    gate = dependency(on=(f"w{n}" for n in range(3)), queue=(build() for _ in range(2)))

    assert gate.watched == ("w0", "w1", "w2")
    assert len(gate.releases) == 2


def test_a_work_named_twice_is_watched_once(build):
    request = build()

    assert dependency(on=[request, request.id, "x", "x"], queue=[]).watched == (request.id, "x")


def test_the_defaults(build):
    gate = dependency(on=["a"], queue=[])

    assert (gate.condition, gate.timeout, gate.on_unmet) == ("all-success", None, "dead")


def test_a_timeout_is_a_duration(build):
    assert dependency(on=["a"], queue=[], timeout=timedelta(minutes=1)).timeout == 60.0
    assert dependency(on=["a"], queue=[], timeout=0).timeout == 0.0
    with pytest.raises(ValueError, match="expected timeout to be 0 seconds or more"):
        dependency(on=["a"], queue=[], timeout=-1)


def test_a_count_larger_than_what_is_watched_is_refused_when_built(build):
    assert dependency(on=["a", "b"], queue=[], condition=Count(2)).condition == Count(2)
    with pytest.raises(ValueError, match="n at most the 2 watched works, got: 3"):
        dependency(on=["a", "b"], queue=[], condition=Count(3))
    with pytest.raises(ValueError, match="n at most the 1 watched works, got: 2"):
        dependency(on=["a", "a"], queue=[], condition=Count(2))  # one work, named twice


def test_a_misspelt_condition_is_refused_with_the_nearest_one():
    with pytest.raises(ValueError, match=r"got: 'all-succes'. Did you mean 'all-success'"):
        dependency(on=["a"], queue=[], condition="all-succes")


def test_on_unmet_is_dead_or_wait():
    assert dependency(on=["a"], queue=[], on_unmet="wait").on_unmet == "wait"
    with pytest.raises(ValueError, match="on_unmet to be 'dead' or 'wait', got: 'ignore'"):
        dependency(on=["a"], queue=[], on_unmet="ignore")


@pytest.mark.parametrize("on", [[None], [""], ["two words"], [5], 5, None, ["x" * 65]])
def test_what_cannot_be_watched_is_refused(on):
    with pytest.raises(InvalidWorkId, match=r"expected a work id to be .* got: ") as refusal:
        dependency(on=on, queue=[])

    assert isinstance(refusal.value, AyeworkError)


@pytest.mark.parametrize("queue", [["a"], "abc", None, 5, [None], [["nested"]], [{"a": 1}]])
def test_what_cannot_be_queued_is_refused_with_how_to_build_a_work(queue):
    with pytest.raises(TypeError, match=r"expected dependency\(queue=\) .* such as add\(a=1, b=2\), got: "):
        dependency(on=["a"], queue=queue)


def test_a_type_that_was_not_called_is_refused(build):
    with pytest.raises(TypeError, match=r"built by calling their type, .* got: <WorkType step>"):
        dependency(on=["a"], queue=[build])
