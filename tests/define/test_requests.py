"""Requests: calling a type, their ids, gates, and attributes that other libraries have."""

import copy
import dataclasses
import itertools
import os
import pickle
import sys
import threading
import time
import uuid
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Count, InvalidWorkId, dependency, get_handle, work
from django_ayework.define import requests
from django_ayework.define.requests import GATE_TYPE, new_uuid7
from django_ayework.define.types import WorkType
from django_ayework.errors import AyeworkError
from tests.app.works import add
from tests.define.declared import context, step


def test_every_call_is_an_unchangeable_request_with_an_id_of_its_own(build):
    requests = [build(n=1) for _ in range(100)]
    ids = [request.id for request in requests]
    assert {uuid.UUID(id).version for id in ids} == {7}
    assert (len(set(ids)), ids) == (100, sorted(ids))
    assert requests[0] != requests[1]
    assert len(set(requests)) == 100  # they may be kept in a set
    with pytest.raises(dataclasses.FrozenInstanceError):
        requests[0].id = "other"


@pytest.mark.parametrize(("make", "got"), [
    ("uuid.uuid4", "as a text, got: UUID"),
    (lambda: "two words", "printable characters without spaces, got: 'two words'"),
])  # fmt: skip
def test_an_id_of_the_setting_that_cannot_be_used_is_refused(build, settings, make, got):
    settings.AYEWORK = {"ID": make}
    with pytest.raises(InvalidWorkId, match=got):
        build()


@work(name="tests.add")
def number(ctx, a: int, b: int = 2): ...


@work(name="tests.note")
def note(text: str, *, loud: bool = False, **labels): ...


def test_arguments_are_kept_by_name_without_defaults():
    assert number(1, b=3).input == number(1, 3).input == number(b=3, a=1).input == {"a": 1, "b": 3}
    assert number.build({"a": 1, "b": 3}).input == {"a": 1, "b": 3}
    assert number(1).input == {"a": 1}
    assert note("x").input == {"text": "x"}
    request = number(1)
    assert request.type == number.name == "tests.add"
    assert repr(request) == f"<WorkRequest tests.add {request.id}>"

    for extra in ({"loud": True, "colour": "red"}, {"self": 1, "labels": 2, "name": 3, "kwargs": 4}):
        assert note("x", **extra).input == {"text": "x", **extra}


@pytest.mark.parametrize(("call", "matter", "got"), [
    (lambda: number(), "missing a required argument: 'a'", "()"),
    (lambda: number.build({}), "missing a required argument: 'a'", "()"),
    (lambda: number(b=1), "missing a required argument: 'a'", "(b=…)"),
    (lambda: number(1, 2, 3), "too many positional arguments", "(…, …, …)"),
    (lambda: number(1, c=3), "got an unexpected keyword argument 'c'", "(…, c=…)"),
    (lambda: number(1, a=1), "multiple values for argument 'a'", "(…, a=…)"),
    (lambda: number(ctx=None, a=1), "got an unexpected keyword argument 'ctx'",
     "(ctx=…, a=…). Leave ctx out: the worker passes the context"),
])  # fmt: skip
def test_a_call_that_does_not_fit_is_refused(call, matter, got):
    with pytest.raises(TypeError) as refusal:
        call()
    assert str(refusal.value) == f"tests.add: {matter}; expected tests.add(a, b=2), got tests.add{got}"
    with pytest.raises(TypeError, match=r"expected tests.note\(text, \*, loud=False, \*\*labels\)"):
        note()


names = st.lists(st.sampled_from(["text", "loud", "labels", "colour", "self", "name"]), unique=True)
calls = names.map(lambda names: {name: place for place, name in enumerate(names)})


@given(calls, st.sampled_from([number, note]))
def test_a_call_by_name_is_bound_as_python_binds_it(arguments, work_type):
    try:
        bound = dict(work_type.signature.bind(**arguments).arguments)
    except TypeError:
        with pytest.raises(TypeError):
            work_type.build(arguments)
    else:
        bound.update(bound.pop("labels", {}))
        assert [*work_type.build(arguments).input.items()] == [*bound.items()]


def test_inputs_are_in_the_order_of_the_signature_and_not_the_mappings_that_they_were_made_of():
    assert list(number(b=1, a=2).input) == list(number.build({"b": 1, "a": 2}).input) == ["a", "b"]
    given = {"a": 1, "b": 2}
    for request in (number.build(given), number.build(given)):
        assert request.input == given
        assert request.input is not given


def test_a_gate_watches_requests_handles_and_ids_in_order_and_once(build):
    request = build()
    gate = dependency(on=[request, get_handle("h-1"), "order-17", request.id, "order-17"], queue=[build()])
    assert gate.watched == (request.id, "h-1", "order-17")
    assert dependency(on=(f"w{n}" for n in range(3)), queue=[]).watched == ("w0", "w1", "w2")
    assert len(dependency(on=["a"], queue=(build() for _ in range(2))).releases) == 2
    assert dependency(on=["a"], queue=request).releases == (request,)
    for single in (build(), get_handle("h-1"), "order-17"):  # which needs no list
        assert len(dependency(on=single, queue=[build()]).watched) == 1


def test_a_gate_is_a_request_of_a_reserved_type_with_defaults(build):
    gate = dependency(on=["a"], queue=[build()])
    assert gate.type == GATE_TYPE and gate.type.startswith("@")
    assert (gate.condition, gate.timeout, gate.on_unmet) == ("all-success", None, "dead")
    assert gate.id
    assert dependency(on=[gate], queue=[]).watched == (gate.id,)  # so a gate can watch a gate
    for option, value, kept in [
        ("on_unmet", "wait", "wait"), ("condition", Count(2), Count(2)),
        ("timeout", timedelta(minutes=1), 60.0), ("timeout", 0, 0.0),
    ]:  # fmt: skip
        assert getattr(dependency(on=["a", "b"], queue=[], **{option: value}), option) == kept


@pytest.mark.parametrize(("options", "message"), [
    ({"condition": Count(3)}, "n at most the 2 watched works, got: 3"),
    ({"on": ["a", "a"], "condition": Count(2)}, "n at most the 1 watched works, got: 2"),
    ({"condition": "all-succes"}, "got: 'all-succes'. Did you mean 'all-success'"),
    ({"on_unmet": "ignore"}, "on_unmet to be 'dead' or 'wait', got: 'ignore'"),
    ({"timeout": -1}, "expected timeout to be 0 seconds or more"),
], ids=["count", "count of one work named twice", "condition", "on_unmet", "timeout"])  # fmt: skip
def test_unusable_options_of_a_gate_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        dependency(**{"on": ["a", "b"], "queue": []} | options)


@pytest.mark.parametrize("on", [[None], [""], ["two words"], [5], 5, None, ["x" * 65]])
def test_what_cannot_be_watched_is_refused(on):
    with pytest.raises(InvalidWorkId, match=r"expected .*(work id|as a text).*got: ") as refusal:
        dependency(on=on, queue=[])
    assert isinstance(refusal.value, AyeworkError)


@pytest.mark.parametrize("queue", [["a"], "abc", None, 5, [None], [["nested"]], [{"a": 1}], [step()]])
def test_what_cannot_be_queued_is_refused_with_how_to_build_a_work(queue):
    with pytest.raises(TypeError, match=r"expected dependency\(queue=\) .* such as add\(a=1, b=2\), got: "):
        dependency(on=["a"], queue=queue)


#: What is said instead of an attribute that is not there, by what was asked for it.
FOREIGN = [
    (lambda: add, {
        "delay": "add.enqueue(…)", "send": "add.enqueue(…)", "delay_on_commit": "add.enqueue(…)",
        "apply_async": "enqueue(add(…), delay=…)", "apply_async_on_commit": "enqueue(add(…), delay=…)",
        "s": "add(…)", "enqeue": "'enqueue'", "func": "add.handler(…)", "AsyncResult": "get_handle(id)",
        "retry": "raise Reschedule(delay=…)",
    }),
    (context, {
        "retry": "raise Reschedule(delay=…)", "request": "ctx.id", "progres": "'progress'",
        "update_state": "ctx.progress(done, total)",
    }),
    (lambda: get_handle("some-id"), {
        "get": "handle.result(timeout=…)", "status": "handle.state().status", "task_id": "handle.id",
        "ready": "handle.state().status in Status.terminal", "revoke": "cancel(handle.id)",
        "retry": "retry(handle.id)", "requeue": "retry(handle.id)", "resutl": "'result'",
    }),
    (lambda: add(a=1, b=2), {
        "enqueue": "enqueue(work)", "delay": "enqueue(work)", "result": "enqueue(work).result()",
    }),
]  # fmt: skip


@pytest.mark.parametrize(("make", "names"), FOREIGN, ids=["type", "context", "handle", "request"])
def test_an_attribute_named_as_elsewhere_is_refused_with_its_name_here(make, names):
    thing = make()
    for foreign, own in names.items():
        with pytest.raises(AttributeError) as refusal:
            getattr(thing, foreign)
        kind = type(thing).__name__
        assert str(refusal.value) == f"{kind!r} object has no attribute {foreign!r}. Did you mean {own}?"


def test_instructions_without_next_say_what_has_it():
    ctx = context()
    built = {"result": ctx.result(1), "void": ctx.void(), "continue_with": ctx.continue_with(add(a=1, b=2))}
    for name, instruction in built.items():
        message = rf"^ctx\.{name}\(…\) has no \.next, which is of ctx\.queue\(…\) only"
        with pytest.raises(AttributeError, match=message):
            instruction.next([add(a=1, b=2)])
    assert not hasattr(dependency([], []), "next")


@pytest.mark.parametrize("thing", [add, get_handle("some-id")], ids=["type", "handle"])
@pytest.mark.parametrize("name", ["zzz", "_private", "__len__"])
def test_an_attribute_like_no_other_is_missed_in_the_usual_words(thing, name):
    kind = "WorkType" if isinstance(thing, WorkType) else "Handle"
    with pytest.raises(AttributeError, match=rf"^'{kind}' object has no attribute '{name}'$"):
        getattr(thing, name)
    assert not hasattr(thing, name)


def test_types_and_handles_are_copied_and_pickled():
    handle = get_handle("some-id")
    request = add(a=1, b=2)
    assert copy.deepcopy(request).id == pickle.loads(pickle.dumps(request)).id == request.id
    assert copy.copy(handle) == pickle.loads(pickle.dumps(handle)) == handle
    assert copy.copy(add).name == "shop.add"


START = 1_700_000_000_000_000_000


def made_at(*readings, make=new_uuid7):
    """Make one at each reading of the clock; what was made before is unknown, as in another process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "_last_tick", 0)
        patch.setattr(requests.time, "time_ns", iter(readings).__next__)
        return [make() for _ in readings]


def milliseconds(id):
    return uuid.UUID(id).int >> 80


def test_an_id_is_a_uuid7_of_now():
    before = time.time_ns() // 1_000_000
    made = new_uuid7()
    assert uuid.UUID(made).version == 7
    assert before <= milliseconds(made) <= time.time_ns() // 1_000_000 + 1


def test_ids_grow_while_the_clock_goes_back_and_follow_it_once_it_has_caught_up():
    made = made_at(*[START - second * 10**9 for second in range(100)], START + 5 * 10**6)
    assert made == sorted(made)
    assert milliseconds(made[-2]) == START // 10**6  # not a moment in the past
    assert milliseconds(made[-1]) == START // 10**6 + 5


def test_ids_of_several_processes_differ_at_one_moment_and_sort_when_made_a_microsecond_apart():
    assert made_at(START) != made_at(START)
    made = [made_at(START + microsecond * 1000)[0] for microsecond in range(50)]
    assert made == sorted(made)


def test_ids_of_a_fork_are_its_own():
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, " ".join(new_uuid7() for _ in range(3)).encode())
        os._exit(0)
    made = {new_uuid7() for _ in range(300)}
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = set(pipe.read().split())

    assert len(theirs) == 3
    assert theirs.isdisjoint(made)


def test_no_two_threads_share_a_tick(monkeypatch):
    ready, made = threading.Barrier(8), []

    def run():
        ready.wait()
        made.append([requests.next_tick() for _ in range(2000)])

    monkeypatch.setattr(requests.time, "time_ns", lambda: START)
    threads = [threading.Thread(target=run) for _ in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    assert all(some == sorted(some) for some in made)
    assert len({tick for some in made for tick in some}) == 16_000


@given(st.lists(st.integers(0, 2**62), min_size=2, max_size=20))
def test_ids_grow_whatever_the_clock_shows(readings):
    ticks = made_at(*readings, make=requests.next_tick)
    assert all(before < after for before, after in itertools.pairwise(ticks))
