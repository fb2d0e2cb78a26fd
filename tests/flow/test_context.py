"""What a running handler can ask, and what it is given about itself."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from django_ayework import Context, Defer, InvalidWorkId, Retry, enqueue, get_handle, work
from django_ayework.models import Work
from django_ayework.testing import drain, now, perform, running_worker, time_travel
from tests.app.works import add, fail
from tests.processes import eventually

pytestmark = pytest.mark.django_db


def test_a_handler_knows_its_identity():
    deadline = now() + timedelta(hours=1)
    seen: list[Any] = []

    @work(name="t.context.child")
    def child(ctx: Context) -> None:
        seen.append((ctx.id, ctx.type, ctx.group_id, ctx.chain_id, ctx.attempt, ctx.parent, ctx.deadline))
        assert (ctx.dependents, ctx.last_error) == ((), None)
        assert (ctx.signal.aborted, ctx.signal.reason) == (False, None)

    @work(name="t.context.parent")
    def parent(ctx: Context):
        return ctx.queue([child()], deadline=deadline)

    handle = enqueue(parent())
    drain()
    row = Work.objects.get(type="t.context.child")
    assert seen == [(row.id, "t.context.child", handle.id, row.id, 1, handle.id, deadline)]


def test_a_key_is_claimed_once():
    claims: list[bool] = []

    @work(name="t.context.claims")
    def claiming(ctx: Context, key: str) -> None:
        claims.append(ctx.claim(key))

    def claim(key: str) -> bool:
        enqueue(claiming(key=key))
        drain()
        return claims[-1]

    assert [claim("mail 7"), claim("mail 7"), claim("mail 8")] == [True, False, True]
    long = "x" * 5000
    assert [claim(long), claim(long), claim(long + "y")] == [True, False, True]
    time_travel(timedelta(hours=23))
    assert claim("mail 7") is False
    time_travel(timedelta(hours=2))
    assert claim("mail 7") is True


@pytest.mark.parametrize("key", ["", " ", "a", "a ", "A", "ä", "a\x00", "\ud800", "claim:a"], ids=ascii)
def test_any_text_is_a_key_of_its_own(key):
    @work(name="t.context.key")
    def claims(ctx: Context) -> list[bool]:
        others = {"", " ", "a", "a ", "A", "ä", "a\x00", "\ud800", "claim:a"} - {key}
        assert all(ctx.claim(other) for other in others)
        return [ctx.claim(key), ctx.claim(key)]

    assert perform(claims()).result == [True, False]


def test_states_come_in_the_order_asked_and_none_for_the_unknown():
    good, bad = enqueue(add(a=1, b=2)), enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    late = enqueue(add(a=1, b=2), delay=60)

    @work(name="t.context.states")
    def asks(ctx: Context) -> list[Any]:
        return ctx.states([late.id, "nowhere", bad.id, good.id, ctx.id, good.id])

    @work(name="t.context.async")
    async def asks_async(ctx: Context) -> list[Any]:
        return [await ctx.aclaim("k"), await ctx.aclaim("k"), await ctx.astates([good.id, "nowhere"])]

    handle, twin = enqueue(asks()), enqueue(asks_async())
    drain()
    assert handle.result(timeout=0) == ["scheduled", None, "dead", "success", "running", "success"]
    assert twin.result(timeout=0) == [True, False, ["success", None]]


@pytest.mark.parametrize(
    ("asks", "message"),
    [
        (lambda ctx: ctx.claim(7), "with a text as the key, got: 7"),
        (lambda ctx: ctx.states([get_handle("a")]), "the id of a work as a text, got: <Handle a>"),
    ],
)
def test_a_key_or_an_id_that_is_no_text_fails_the_attempt(asks, message):
    enqueue(work(name="t.context.no_text")(lambda ctx: asks(ctx))())
    with pytest.raises((TypeError, InvalidWorkId), match=message):
        drain()


def test_progress_shows_in_the_state():
    @work(name="t.context.progress")
    def progresses(ctx: Context) -> None:
        ctx.progress(1, 10)
        ctx.progress(3, 10, "third page")
        if ctx.attempt == 1:
            raise Defer(delay=60)

    handle = enqueue(progresses())
    drain()
    state = handle.state()
    assert state.progress == {"done": 3, "total": 10, "note": "third page"}


@pytest.mark.parametrize(("given", "name"), [(("3/4",), "done"), ((None,), "done"), ((3, "4"), "total")])
def test_progress_that_is_no_number_fails_the_attempt(given, name):
    handle = enqueue(work(name="t.context.progress_text")(lambda ctx: ctx.progress(*given))())
    with pytest.raises(TypeError, match=f"with {name} as a number, got: {given[-1]!r}"):
        drain()
    assert handle.state().progress is None


@pytest.mark.django_db(transaction=True)
def test_progress_shows_while_the_work_runs():
    seen = threading.Event()

    @work(name="t.context.progress_live")
    def progresses(ctx: Context) -> None:
        ctx.progress(3, 10)
        seen.wait(20)

    handle = enqueue(progresses())
    with running_worker(concurrency=1):
        eventually(lambda: handle.state().progress)
        state = handle.state()
        seen.set()
    assert (state.status, state.progress) == ("running", {"done": 3, "total": 10, "note": ""})
