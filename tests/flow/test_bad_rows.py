"""Rows whose stored content cannot be used, or whose type is unknown: they say so, and disturb no others."""

from __future__ import annotations

from typing import Any

import pytest

from django_ayework import Retry, dependency, enqueue, retry, work
from django_ayework.models import Attempt, Work
from django_ayework.testing import drain
from tests.app.works import add

pytestmark = pytest.mark.django_db


@pytest.fixture
def stored():
    """Return a work whose row has other content than was queued."""

    def store(**columns: Any) -> Any:
        handle = enqueue(add(a=1, b=2), retry=Retry(attempts=5))
        Work.objects.filter(id=handle.id).update(**columns)
        return handle

    return store


@pytest.mark.parametrize(
    ("text", "error"),
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
def test_a_row_whose_input_cannot_be_used_dies_alone_and_can_be_mended(text, error, stored):
    good, bad = enqueue(add(a=1, b=2)), stored(input=text)
    report = drain(raises=False)
    assert (report.succeeded, report.dead) == (1, 1)
    assert good.result(timeout=0) == 3
    state = bad.state()
    assert (state.status, state.reason) == ("dead", "bad_input")
    assert state.error.startswith(error)
    assert Work.objects.get(id=bad.id).input == text
    assert Attempt.objects.get().outcome == "died"
    retry(bad.id, {"a": 3, "b": 4})
    drain()
    assert bad.result(timeout=0) == 7


class Strange:
    """A codec that cannot read what it has written."""

    def encode(self, value: Any) -> str:
        return "{}" if isinstance(value, dict) else "5"

    def decode(self, text: str) -> Any:
        return {} if text == "{}" else {}[text]


def test_an_input_that_a_codec_of_ones_own_cannot_read():
    @work(name="t.bad.codec", codec=Strange())
    def unreadable() -> None: ...

    handle = enqueue(unreadable())
    Work.objects.update(input="5")
    assert drain(raises=False).dead == 1
    assert (handle.state().reason, handle.state().error) == ("bad_input", "KeyError: '5'")


def test_a_result_that_cannot_be_read_is_shown_as_its_text():
    seen: list[Any] = []

    @work(name="t.bad.forgetful", codec=Strange(), on_event=seen.append)
    def forgetful() -> int:
        return 5

    handle = enqueue(forgetful())
    assert drain().succeeded == 1
    assert handle.state().result == "5"
    assert [event.kind for event in seen] == ["queued", "started", "succeeded"]
    Work.objects.update(type="shop.add", result="garbage")
    assert handle.state().result == "garbage"


def test_a_row_whose_options_cannot_be_read_runs_with_the_defaults(stored):
    handle = stored(options="garbage")
    assert handle.state().attempts == 3
    drain()
    assert handle.result(timeout=0) == 3


def test_options_of_a_newer_version_are_left_out_and_the_others_apply(stored):
    newer = '{"retry":[5,1.0,2.0,30.0,0.5,"newer"],"timeout":7.0,"newer":{"a":1}}'
    handle = stored(options=newer)
    assert (handle.state().attempts, handle.state().timeout) == (5, 7.0)
    drain()
    assert handle.result(timeout=0) == 3


def test_a_gate_whose_releases_cannot_be_read_dies_and_says_so():
    watched = enqueue(add(a=1, b=2))
    gate = enqueue(dependency([watched], [add(a=3, b=4)]))
    Work.objects.filter(id=gate.id).update(input="garbage")
    drain()
    state = gate.state()
    assert (state.status, state.reason) == ("dead", "bad_input")
    assert "expected the stored input of a gate" in (state.error or "")
