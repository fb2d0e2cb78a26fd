"""What queueing gives back: handles typed by the work's own result and by the group's value."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Never, assert_type

from django.db.models.signals import post_save

from django_ayework import (
    ChainState,
    Dedup,
    Handle,
    Status,
    WorkState,
    acancel,
    adelete_chains,
    aenqueue,
    aenqueue_many,
    aretry,
    cancel,
    delete_chains,
    dependency,
    enqueue,
    enqueue_many,
    enqueue_on,
    get_handle,
    retry,
)
from tests.typing.builders import add, clean, either, fan_out, hand_over, receipt


def queueing() -> None:
    """Every way to queue keeps the types."""
    assert_type(enqueue(add(a=1, b=2)), Handle[int, int])
    assert_type(
        enqueue(add(a=1, b=2), delay=timedelta(seconds=5), priority=10, on_commit=True), Handle[int, int]
    )
    assert_type(enqueue(add(a=1, b=2), dedup=Dedup("k", "any", 60, ["id"])), Handle[int, int])
    assert_type(enqueue(clean(), dedup=Dedup("k", exclude=[enqueue(clean())])), Handle[None, Never])
    assert_type(enqueue(clean()), Handle[None, Never])
    assert_type(enqueue_many([clean()], skip_queue=True), list[Handle[None, Never]])
    assert_type(enqueue(dependency(on=["a"], queue=[add(a=1, b=2)])), Handle[None, int])
    assert_type(enqueue("types.add", {"a": 1, "b": 2}, id="mine"), Handle[Any, Any])
    assert_type(enqueue_many([add(a=1, b=2)], together=True), list[Handle[int, int]])
    assert_type(add.enqueue(a=1, b=2), Handle[int, int])
    assert_type(get_handle("a"), Handle[Any, Any])
    assert_type(cancel("a"), Handle[Any, Any])
    assert_type(cancel(group="a"), list[str])
    assert_type(get_handle("a").cancel(), list[str])
    assert_type(retry("a"), Handle[Any, Any])
    assert_type(retry("a", {"n": 1}, again=True), Handle[Any, Any])
    assert_type(retry(group=get_handle("a")), list[str])
    assert_type(delete_chains("a", enqueue(add(a=1, b=2)), get_handle("b"), cascade=True), list[str])
    assert_type(
        enqueue_on(post_save, make_work=lambda **given: receipt(order_id=given["instance"].pk)),
        Callable[[], None],
    )


async def queueing_later() -> None:
    """The async twins give the same."""
    assert_type(await aenqueue(add(a=1, b=2), delay=5), Handle[int, int])
    assert_type(await aenqueue("types.add", {"a": 1}), Handle[Any, Any])
    assert_type(await aenqueue_many([add(a=1, b=2)]), list[Handle[int, int]])
    assert_type(await add.aenqueue(a=1, b=2), Handle[int, int])
    assert_type(await acancel("a"), Handle[Any, Any])
    assert_type(await acancel(group="a"), list[str])
    assert_type(await get_handle("a").acancel(), list[str])
    assert_type(await aretry("a"), Handle[Any, Any])
    assert_type(await aretry(group="a"), list[str])
    assert_type(await adelete_chains(enqueue(clean())), list[str])


def waiting() -> None:
    """A result is what the handler returns; a group may have no value."""
    handle = enqueue(add(a=1, b=2))
    assert_type(handle.result(), int)
    assert_type(handle.result(timeout=timedelta(seconds=1)), int)
    assert_type(handle.group(timeout=1), int | None)
    assert_type(add.enqueue(a=1, b=2).result(), int)
    assert_type(add.enqueue(a=1, b=2).chain(), int)
    assert_type(enqueue(hand_over()).chain(), str)
    assert_type(enqueue_many([hand_over()])[0].chain(timeout=1), str)
    assert_type(enqueue(fan_out()).chain(), None)
    assert_type(enqueue("types.add").chain(), Any)
    assert_type(enqueue(fan_out()).group(), int | None)
    gate = enqueue(dependency(on=[handle], queue=[add(a=1, b=2)]))
    assert_type(gate.result(), None)
    assert_type(gate.chain(), None)
    assert_type(gate.group(), int | None)
    assert_type(enqueue(either(now=True)).result(), int | None)
    assert_type(enqueue("types.add").result(), Any)


async def waiting_later() -> None:
    """Awaiting a handle is waiting for its group."""
    handle = await aenqueue(add(a=1, b=2))
    assert_type(await handle, int | None)
    assert_type(await handle.aresult(), int)
    assert_type(await handle.achain(), int)
    assert_type(await hand_over.enqueue().achain(), str)
    assert_type(await handle.agroup(timeout=1), int | None)
    assert_type(await enqueue(receipt(order_id=1)), str | None)
    assert_type(await add.enqueue(a=1, b=2), int | None)


async def looking() -> None:
    """The facts of a work."""
    handle = enqueue(receipt(order_id=1))
    assert_type(handle.id, str)
    assert_type(handle.group_id, str)
    assert_type(handle.chain_id, str)
    assert_type(handle.deduplicated, bool)
    assert_type(await handle.astate(), WorkState | None)
    assert_type(handle.chain_state(start=0, limit=10), ChainState | None)
    assert_type(await handle.achain_state(), ChainState | None)
    chain = handle.chain_state()
    if chain is not None:
        assert_type(chain.type, str | None)
        assert_type(chain.status, Status)
        assert_type(chain.steps, tuple[WorkState, ...])
    state = handle.state()
    if state is not None:
        assert_type(state.status, Status)
        assert_type(state.started_at, datetime | None)
        assert_type(state.progress, dict[str, Any] | None)


def covariant(handle: Handle[int, int]) -> Handle[int | None, object]:
    """A handle of something narrower will do."""
    return handle


def refused() -> None:
    """Mistakes that the checkers see."""
    Dedup("k", scope="all")  # type: ignore[arg-type]  # expected to be refused: no such scope
    enqueue(add)  # type: ignore[call-overload]  # expected to be refused: the type itself, not a request
    enqueue(add(a=1, b=2), {"a": 1})  # type: ignore[call-overload]  # expected to be refused: two inputs
    enqueue(add(a=1, b=2), delay="soon")  # type: ignore[call-overload]  # expected to be refused: no duration
    add.enqueue(a=1, b=2, delay=5)  # type: ignore[call-arg]  # expected to be refused: takes no options
    text: str = enqueue(add(a=1, b=2)).result()  # type: ignore[assignment]  # expected to be refused: an int
    assert text
