"""What a type of batches knows: the one input of its works, and the result of each."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never, assert_type

from django_ayework import BatchItem, Handle, Retry, WorkRequest, batch_work, enqueue


@batch_work(name="types.embed", size=50, max_wait=0.1)
def embed(items: list[BatchItem[str]]) -> list[list[float]]:
    assert_type(items[0].input, str)
    assert_type((items[0].id, items[0].attempt), tuple[str, int])
    return [[float(len(item.input))] for item in items]


assert_type(embed("text"), WorkRequest[list[float], list[float]])
assert_type(embed.enqueue("text"), Handle[list[float], list[float]])
assert_type(enqueue(embed("text"), delay=5).result(), list[float])
assert_type(embed.size, int)


@batch_work(name="types.embed_later", queue="slow", retry=Retry(attempts=2), options=lambda text: {})
async def embed_later(items: Sequence[BatchItem[str]]) -> tuple[float, ...]:
    return tuple(float(len(item.input)) for item in items)


assert_type(embed_later("text"), WorkRequest[float, float])


@batch_work(name="types.each_by_itself")
def each_by_itself(items: list[BatchItem[dict[str, int]]]) -> list[str | Exception]:
    return [ValueError("odd") if item.input["a"] % 2 else "even" for item in items]


assert_type(each_by_itself({"a": 1}), WorkRequest[str, str])


@batch_work(name="types.index_all")
async def index_all(items: list[BatchItem[int]]) -> list[None]:
    return [None for _ in items]


assert_type(index_all(1), WorkRequest[None, Never])


@batch_work(name="types.some")
def some(items: list[BatchItem[int]]) -> list[str | None]:
    return [None for _ in items]


assert_type(some(1), WorkRequest[str | None, str | None])


@batch_work(name="types.anything_batched")
def anything_batched(items: list[BatchItem[int]]) -> list[Any]:
    return [1 for _ in items]


assert_type(anything_batched(1), WorkRequest[Any, Any])


@batch_work
def unnamed(items: list[BatchItem[int]]) -> list[int]:
    return [item.input for item in items]


assert_type(unnamed(1), WorkRequest[int, int])

# --- mistakes ------------------------------------------------------------------------------------------

embed(1)  # type: ignore[arg-type]  # expected to be refused: the input is a text
embed("a", "b")  # type: ignore[call-arg]  # expected to be refused: one input
embed()  # type: ignore[call-arg]  # expected to be refused: no input


@batch_work(name="types.one", size="many")  # type: ignore[call-overload]  # expected to be refused: an int
def one(items: list[BatchItem[int]]) -> list[int]:
    return []


@batch_work(name="types.no_list")  # type: ignore[arg-type]  # expected to be refused: one output for many items
def no_list(items: list[BatchItem[int]]) -> int:
    return 1


@batch_work(name="types.transaction", atomic=True)  # type: ignore[call-overload]  # expected to be refused
def transaction(items: list[BatchItem[int]]) -> list[int]:
    return []
