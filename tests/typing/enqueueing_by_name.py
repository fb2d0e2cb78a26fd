"""What the module written by ayework_typing knows of works by name."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any, Never, assert_type
from uuid import UUID

from django_ayework import Handle, dependency
from django_ayework.define.requests import GateRequest
from tests.typing.by_name import aenqueue, enqueue
from tests.typing.works import Place, Size, add

ID = UUID(int=1)

assert_type(enqueue("typing.add", {"a": 1, "b": 2}), Handle[int, str])
assert_type(enqueue("typing.add", {"a": 1}, delay=5), Handle[int, str])
assert_type(
    enqueue(
        "typing.deliver",
        {"day": date.today(), "to": None, "size": Size.SMALL, "speed": 3, "weights": {"a": [Decimal(1)]}},
    ),
    Handle[Place, Place],
)
assert_type(enqueue("typing.split", {"ids": [ID], "pair": (1, 2), "note": "x"}), Handle[None, int])
assert_type(enqueue("typing.hand_over"), Handle[None, int, str])
assert_type(enqueue("typing.hand_over").chain(), str)
assert_type(enqueue("typing.maybe"), Handle[None, str])
assert_type(enqueue("typing.nothing"), Handle[None, Never])
assert_type(enqueue("typing.plain", {"uuid": ID}), Handle[None, Never])
assert_type(enqueue("typing.loose", {"order_id": 1, "more": 2}), Handle[Any, Any])
assert_type(enqueue("typing.embed", "text"), Handle[list[float], list[float]])
assert_type(enqueue("typing.note", {"a": 1}), Handle[None, Never])
assert_type(enqueue(add(a=1)), Handle[int, str])

# What a handle gives: the work's own result, the value of its group, the result of its chain.
assert_type(enqueue("typing.add", {"a": 1}).result(), int)
assert_type(enqueue("typing.add", {"a": 1}).group(timeout=1), str | None)
assert_type(enqueue("typing.add", {"a": 1}).chain(), int)
assert_type(enqueue("typing.split", {"ids": [ID], "pair": (1, 2), "note": "x"}).result(), None)
assert_type(enqueue("typing.split", {"ids": [ID], "pair": (1, 2), "note": "x"}).group(), int | None)
assert_type(enqueue("typing.hand_over").result(), None)
assert_type(enqueue("typing.hand_over").group(), int | None)

# A gate that waits for works by name contributes what it releases.
assert_type(dependency(on=[enqueue("typing.add", {"a": 1})], queue=[add(a=1)]), GateRequest[str])
assert_type(enqueue(dependency(on=[enqueue("typing.hand_over")], queue=[add(a=1)])), Handle[None, str])
assert_type(enqueue(dependency(on=[enqueue("typing.nothing")], queue=[add(a=1)])).group(), str | None)
assert_type(enqueue(dependency(on=[enqueue("typing.nothing")], queue=[add(a=1)])).result(), None)


async def later() -> None:
    assert_type(await aenqueue("typing.add", {"a": 1}), Handle[int, str])
    assert_type(await aenqueue(add(a=1)), Handle[int, str])
    handle = await aenqueue("typing.hand_over")
    assert_type(await handle.aresult(), None)
    assert_type(await handle.achain(), str)
    assert_type(await handle.agroup(), int | None)
    assert_type(await handle, int | None)


# --- mistakes ------------------------------------------------------------------------------------------

enqueue("typing.ad", {"a": 1})  # type: ignore[call-overload]  # expected to be refused: no such name
enqueue("typing.add", {"a": "1"})  # type: ignore[call-overload]  # expected to be refused: a is a number
enqueue("typing.add", {"b": 1})  # type: ignore[call-overload]  # expected to be refused: a is missing
enqueue("typing.add", {"a": 1, "c": 2})  # type: ignore[call-overload]  # expected to be refused: no input c
enqueue("typing.add")  # type: ignore[call-overload]  # expected to be refused: no input at all
enqueue("typing.embed", 1)  # type: ignore[call-overload]  # expected to be refused: the input is a text
