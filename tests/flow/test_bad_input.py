"""What can be wrong with what comes in: each has its own error, a sentence that helps, and loses nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_ayework import (
    AyeworkError,
    NotEncodable,
    NotRetryable,
    PayloadTooLarge,
    Retry,
    UnknownWorkType,
    WorkNotFound,
    WorkState,
    aretry,
    dependency,
    enqueue,
    get_handle,
    registry,
    retry,
    work,
)
from django_ayework.models import Attempt, Work
from django_ayework.testing import now
from django_ayework.testing.factories import WorkFactory
from tests.app.models import Order
from tests.app.works import add, fail
from tests.flow.conftest import Configure

pytestmark = pytest.mark.django_db


@work(name="t.bad.keep")
def keep(order: Any = None, **more: Any) -> None: ...


@work(name="t.bad.once", retry=Retry(attempts=1), expires=60)
def once(n: int = 1) -> int:
    if n < 5:
        raise ValueError(f"{n} is too small")
    return n


def stated(id: str) -> WorkState:
    state = get_handle(id).state()
    assert state is not None
    return state


# At the queueing


def test_an_unknown_work_name() -> None:
    with pytest.raises(UnknownWorkType) as raised:
        enqueue("shop.adds", {"a": 1, "b": 2})
    assert str(raised.value) == (
        "no work is named 'shop.adds'. Did you mean 'shop.add'? "
        "A work is known once its app is in INSTALLED_APPS and its works.py defines it."
    )
    assert isinstance(raised.value, AyeworkError)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1,), {}, "shop.add: missing a required argument: 'b'; expected shop.add(a, b)"),
        ((1, 2, 3), {}, "shop.add: too many positional arguments; expected shop.add(a, b)"),
        ((), {"a": 1, "b": 2, "c": 3}, "shop.add: got an unexpected keyword argument 'c'; expected"),
        ((1,), {"a": 1}, "shop.add: multiple values for argument 'a'; expected shop.add(a, b)"),
    ],
    ids=["missing", "too many", "unexpected", "twice"],
)
def test_arguments_that_do_not_fit(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError) as raised:
        add(*args, **kwargs)
    assert str(raised.value).startswith(message)
    assert Work.objects.count() == 0


def test_arguments_that_do_not_fit_by_name() -> None:
    with pytest.raises(TypeError, match=r"missing a required argument: 'b'; expected shop\.add\(a, b\)"):
        enqueue("shop.add", {"a": 1})


def test_an_input_among_the_options() -> None:
    with pytest.raises(
        TypeError, match=r"such as enqueue\('shop\.add', \{'a': …\}\), got a, b among the options"
    ):
        enqueue("shop.add", a=1, b=2)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"'dealy' is not a queueing option. Did you mean 'delay'"):
        enqueue("shop.add", {"a": 1, "b": 2}, dealy=5)  # type: ignore[call-overload]


def test_an_input_that_is_no_mapping() -> None:
    with pytest.raises(TypeError, match=r"expected the input of 'shop\.add' as a mapping of names to values"):
        enqueue("shop.add", [1, 2])  # type: ignore[call-overload]


def test_an_input_beside_a_built_work() -> None:
    with pytest.raises(TypeError, match="expected the input only with a type name"):
        enqueue(add(a=1, b=2), {"a": 1})  # type: ignore[call-overload]


@pytest.mark.parametrize("what", [add, print, None, 5], ids=["type", "function", "none", "number"])
def test_what_is_no_work(what: Any) -> None:
    with pytest.raises(TypeError, match=r"works built by calling their type, such as add\(a=1, b=2\), got"):
        enqueue(what)


class Opaque:
    """Nothing that could be stored."""


@pytest.mark.parametrize(
    ("arguments", "path", "advice"),
    [
        ({"order": Opaque()}, "input['order']", "pass plain data"),
        ({"order": {"lines": [1, Opaque()]}}, "input['order']['lines'][1]", "pass plain data"),
        ({"order": Order(pk=7)}, "input['order']", "pass its primary key (.pk) and load it in the handler"),
        ({"order": print}, "input['order']", "pass its dotted name"),
        ({"extra": Opaque()}, "input['extra']", "pass plain data"),
    ],
    ids=["object", "nested", "model", "function", "keyword"],
)
def test_an_argument_that_cannot_be_stored(arguments: Any, path: str, advice: str) -> None:
    with pytest.raises(NotEncodable) as raised:
        enqueue(keep(**arguments))
    assert raised.value.path == path
    assert path in str(raised.value)
    assert advice in str(raised.value)
    assert str(raised.value).startswith("the input of 't.bad.keep' cannot be stored: ")
    assert isinstance(raised.value, TypeError)
    assert Work.objects.count() == 0


def test_an_argument_of_a_gated_work_that_cannot_be_stored() -> None:
    with pytest.raises(NotEncodable, match=r"input\['order'\]"):
        enqueue(dependency(["x"], [keep(order=Opaque())]))
    assert Work.objects.count() == 0


def test_an_input_that_is_too_large(configure: Configure) -> None:
    configure(MAX_PAYLOAD=30)
    with pytest.raises(PayloadTooLarge) as raised:
        enqueue(keep(order="x" * 30))
    assert str(raised.value) == (
        "expected the input of 't.bad.keep' to have at most 30 characters once encoded "
        "(AYEWORK['MAX_PAYLOAD']), got: 42; store it elsewhere and pass a reference."
    )
    assert isinstance(raised.value, ValueError)
    assert enqueue(keep(order="x" * 18)).state() is not None


# In the queue


@pytest.mark.parametrize(
    ("stored", "error"),
    [
        ("garbage", "NotDecodable: expected JSON text, got"),
        ("", "NotDecodable: expected JSON text, got"),
        ('{"a":1,', "NotDecodable: expected JSON text, got"),
        ("[1,2]", "NotDecodable: expected a stored input to be arguments by name, got: '[1,2]'."),
        ('{"a":1}', "TypeError: shop.add: missing a required argument: 'b'; expected shop.add(a, b)"),
        ('{"a":1,"b":2,"c":3}', "TypeError: shop.add: got an unexpected keyword argument 'c'; expected"),
    ],
    ids=["garbage", "empty", "cut", "list", "missing", "extra"],
)
def test_a_row_whose_input_cannot_be_used(stored: str, error: str, drain: Any) -> None:
    good = enqueue(add(a=1, b=2))
    bad = enqueue(add(a=1, b=2), retry=Retry(attempts=5))
    Work.objects.filter(id=bad.id).update(input=stored)
    report = drain()
    assert (report.succeeded, report.dead) == (1, 1)
    assert good.result(timeout=0) == 3
    state = stated(bad.id)
    assert (state.status, state.reason) == ("dead", "bad_input")
    assert (state.error or "").startswith(error)
    assert Work.objects.get(id=bad.id).input == stored
    assert Attempt.objects.get().outcome == "died"


def test_an_input_that_a_codec_of_ones_own_cannot_read(drain: Any) -> None:
    class Numbers:
        def encode(self, value: Any) -> str:
            return "5"

        def decode(self, text: str) -> Any:
            raise KeyError(text)

    @work(name="t.bad.codec", codec=Numbers())
    def unreadable() -> None: ...

    handle = enqueue(unreadable())
    assert drain().dead == 1
    assert (stated(handle.id).reason, stated(handle.id).error) == ("bad_input", "KeyError: '5'")


def test_a_row_with_bad_input_can_be_mended(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2))
    Work.objects.filter(id=handle.id).update(input="garbage")
    drain()
    retry(handle.id, {"a": 3, "b": 4})
    drain()
    assert handle.result(timeout=0) == 7


def test_a_row_whose_options_cannot_be_read_runs_with_the_defaults(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2))
    Work.objects.filter(id=handle.id).update(options="garbage")
    assert stated(handle.id).attempts == 3
    drain()
    assert handle.result(timeout=0) == 3


def test_a_result_that_cannot_be_read_is_shown_as_its_text(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2))
    drain()
    Work.objects.filter(id=handle.id).update(result="garbage")
    assert stated(handle.id).result == "garbage"


def test_a_result_that_a_codec_of_ones_own_cannot_read_disturbs_nobody(drain: Any) -> None:
    class Forgetful:
        def encode(self, value: Any) -> str:
            return "{}" if isinstance(value, dict) else "5"

        def decode(self, text: str) -> Any:
            return {} if text == "{}" else {}[text]

    seen: list[Any] = []

    @work(name="t.bad.forgetful", codec=Forgetful(), on_event=seen.append)
    def forgetful() -> int:
        return 5

    handle = enqueue(forgetful())
    assert drain().succeeded == 1
    assert stated(handle.id).result == "5"
    assert [event.kind for event in seen] == ["queued", "started", "succeeded"]


def test_a_gate_whose_releases_cannot_be_read_dies_and_says_so(drain: Any) -> None:
    watched = enqueue(add(a=1, b=2))
    gate = enqueue(dependency([watched], [add(a=3, b=4)]))
    Work.objects.filter(id=gate.id).update(input="garbage")
    drain()
    state = stated(gate.id)
    assert (state.status, state.reason) == ("dead", "bad_input")
    assert "expected the stored input of a gate" in (state.error or "")


def test_an_unknown_type_waits_for_a_worker_that_knows_it(drain: Any, time_travel: Any) -> None:
    row = WorkFactory(type="t.bad.unknown_yet")
    assert drain().ran == 0
    state = stated(row.id)
    assert (state.status, state.attempt, state.reason) == ("scheduled", 0, None)
    assert (state.last_error or "").startswith("no worker here knows this type, since ")
    assert timedelta(seconds=4) < state.start_at - now() <= timedelta(seconds=5)

    @work(name="t.bad.unknown_yet")
    def known(a: int, b: int) -> int:
        return a * b

    time_travel(5.1)
    assert drain().succeeded == 1
    assert (stated(row.id).result, stated(row.id).attempt) == (2, 1)
    registry.unregister("t.bad.unknown_yet")


def test_an_unknown_type_is_given_up_after_the_grace(
    drain: Any, time_travel: Any, configure: Configure
) -> None:
    configure(UNKNOWN_TYPE_GRACE=12)
    row = WorkFactory(type="t.bad.unknown")
    for _ in range(3):
        assert drain().ran == 0
        time_travel(5.1)
    assert drain().dead == 1
    state = stated(row.id)
    assert (state.status, state.reason, state.attempt) == ("dead", "unknown_type", 0)
    assert state.error == (
        "unknown work type: no worker knew 't.bad.unknown' within AYEWORK['UNKNOWN_TYPE_GRACE']; "
        "install the app that defines it, then retry this work"
    )
    retry(row.id)
    assert drain().ran == 0
    assert stated(row.id).status == "scheduled"


@pytest.mark.django_db(transaction=True)
def test_an_unknown_type_holds_up_no_other_work(running_worker: Any) -> None:
    row = WorkFactory(type="t.bad.unknown", priority=9)
    with running_worker(concurrency=1):
        assert enqueue(add(a=1, b=2)).result(timeout=20) == 3
    assert (stated(row.id).status, stated(row.id).attempt) == ("scheduled", 0)


# At a retry


@pytest.mark.parametrize("status", ["pending", "scheduled", "running", "success", "blocked"])
def test_a_work_that_has_not_died_cannot_be_retried(status: str) -> None:
    row = WorkFactory(status=status)
    with pytest.raises(NotRetryable) as raised:
        retry(row.id)
    assert str(raised.value) == (
        f"expected the work {row.id} to be dead or cancelled, but it is {status}; "
        "only ended works without success can be retried."
    )
    assert raised.value.id == row.id
    row.refresh_from_db()
    assert row.status == status


def test_a_work_that_is_not_there_cannot_be_retried() -> None:
    with pytest.raises(WorkNotFound, match="no work has the id 'nowhere', so it cannot be retried") as raised:
        retry("nowhere")
    assert raised.value.id == "nowhere"


def test_a_retry_gives_a_full_budget_and_remembers_the_last_error(drain: Any, time_travel: Any) -> None:
    handle = enqueue(fail(), retry=Retry(attempts=2))
    for _ in range(2):
        drain()
        time_travel(60)
    assert stated(handle.id).status == "dead"
    assert retry(handle.id) == handle
    state = stated(handle.id)
    assert (state.status, state.attempt, state.reason, state.error) == ("pending", 0, None, None)
    assert state.last_error == "RuntimeError: no luck"
    assert (state.ended_at, state.completed_by) == (None, None)
    assert drain().retried == 1


def test_a_cancelled_work_can_be_retried(drain: Any) -> None:
    row = WorkFactory(status="cancelled")
    retry(row.id)
    assert drain().succeeded == 1


def test_a_retry_may_bring_a_new_input(drain: Any) -> None:
    handle = enqueue(once(n=1))
    drain()
    retry(handle.id, {"n": 7})
    drain()
    assert handle.result(timeout=0) == 7


@pytest.mark.parametrize(
    ("input", "error"),
    [
        ({"m": 1}, "got an unexpected keyword argument 'm'"),
        ({"n": Opaque()}, r"input\['n'\]"),
    ],
    ids=["misfit", "opaque"],
)
def test_a_new_input_is_checked_and_a_bad_one_changes_nothing(input: Any, error: str, drain: Any) -> None:
    handle = enqueue(once(n=1))
    drain()
    with pytest.raises(TypeError, match=error):
        retry(handle.id, input)
    assert Work.objects.get().input == '{"n":1}'
    assert stated(handle.id).status == "dead"


def test_a_new_input_for_a_type_nobody_knows_is_refused() -> None:
    row = WorkFactory(type="t.bad.gone", status="dead")
    with pytest.raises(UnknownWorkType):
        retry(row.id, {"a": 1})
    assert retry(row.id).id == row.id


def test_expires_counts_anew_after_a_retry(drain: Any, time_travel: Any) -> None:
    handle = enqueue(once(n=9))
    time_travel(61)
    drain()
    assert stated(handle.id).reason == "expired"
    time_travel(600)
    retry(handle.id)
    deadline = stated(handle.id).deadline
    assert deadline is not None
    assert abs((deadline - now()).total_seconds() - 60) < 1
    drain()
    assert handle.result(timeout=0) == 9


def test_an_explicit_deadline_stays_after_a_retry(drain: Any, time_travel: Any) -> None:
    moment = now() + timedelta(seconds=30)
    handle = enqueue(once(n=9), deadline=moment)
    time_travel(31)
    drain()
    retry(handle.id)
    assert stated(handle.id).deadline == moment
    drain()
    assert stated(handle.id).reason == "expired"


@pytest.mark.django_db(transaction=True)
def test_the_async_twin_retries_too(drain: Any) -> None:
    handle = enqueue(once(n=1))
    drain()
    assert async_to_sync(aretry)(handle.id, {"n": 8}) == handle
    drain()
    assert handle.result(timeout=0) == 8
