"""Rows whose stored content cannot be used, or whose type nobody knows: they say so, and disturb nobody."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_ayework import Retry, dependency, enqueue, registry, retry, work
from django_ayework.models import Attempt, Work
from django_ayework.testing import now
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add
from tests.flow.conftest import Configure
from tests.flow.kit import stated

pytestmark = pytest.mark.django_db


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
    report = drain(raises=False)
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
    assert drain(raises=False).dead == 1
    assert (stated(handle.id).reason, stated(handle.id).error) == ("bad_input", "KeyError: '5'")


def test_a_row_with_bad_input_can_be_mended(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2))
    Work.objects.filter(id=handle.id).update(input="garbage")
    drain(raises=False)
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
    assert (state.error or "").startswith(
        "unknown work type: no worker knew 't.bad.unknown' within AYEWORK['UNKNOWN_TYPE_GRACE']; "
        "install the app that defines it, then retry this work. "
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
