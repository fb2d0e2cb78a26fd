"""Works with inputs and results of many kinds; tests/typing/by_name.py is written from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from django_ayework import BatchItem, Context, Continue, Instruction, Queue, Result, Void, batch_work, work


class Size(StrEnum):
    """An enumeration as an input."""

    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Place:
    """A dataclass as an input and as a result."""

    city: str


@work
def add(ctx: Context, a: int, b: int = 0) -> Instruction[int, str]:
    raise NotImplementedError


@work
async def deliver(
    day: date,
    to: Place | None,
    size: Size,
    speed: Literal["slow", '"fast"', 3],
    weights: dict[str, list[Decimal]],
) -> Place:
    return Place("x")


@work
def split(
    ctx: Context, ids: Sequence[UUID], pair: tuple[int, ...], note: Annotated[str, "shown"]
) -> Queue[int]:
    raise NotImplementedError


@work
def hand_over(ctx: Context) -> Continue[int, str]:
    raise NotImplementedError


@work
def maybe(ctx: Context, wanted: bool = True) -> Queue[str] | None:
    return None


@work
def nothing(ctx: Context) -> Void:
    return ctx.void()


@work
def total(ctx: Context, until: datetime) -> Result[Decimal]:
    return ctx.result(Decimal(1))


@work
def plain(uuid: UUID) -> None: ...


@work
def loose(ctx, order_id, **more):  # type: ignore[no-untyped-def]
    return None


@batch_work
def embed(items: list[BatchItem[str]]) -> list[list[float] | Exception]:
    return [[1.0] for _ in items]


@batch_work
def note(items: list[BatchItem[dict[str, Any]]]) -> list[None]:
    return [None for _ in items]
