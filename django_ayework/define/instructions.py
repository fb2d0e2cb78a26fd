"""Instructions, which a handler returns. They have no effect before that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Never, TypeAlias, TypeVar, Unpack

from django_ayework.define.handles import C_co, G_co, R_co, S_co, T
from django_ayework.define.options import QueueOptions, checked, refuse_of_enqueue
from django_ayework.define.requests import (
    Queueable,
    WorkRequest,
    how_to_build,
    require_new,
    require_own_identity,
)
from django_ayework.documentation import type_error
from django_ayework.rules.conditions import Condition, Contribution, require_condition

H = TypeVar("H")


class Instruction(Queueable[R_co, G_co, C_co]):
    """The return value of a handler, typed by the work's result, its contribution, and its chain's result.

    ``context`` is the one that built it: a handler can only return instructions of its own. ``method`` is the
    name of the context's method that builds it.
    """

    method: ClassVar[str]

    def __init__(self, context: object) -> None:
        self.context = context

    def __repr__(self) -> str:
        return f"ctx.{self.method}(…)"


class Result(Instruction[T, T, T]):
    """``ctx.result(value)``: the work's own result, and its contribution to the group."""

    method = "result"

    def __init__(self, context: object, value: T, final: bool, append: Callable[[Any], Any] | None) -> None:
        super().__init__(context)
        self.value = value
        self.contribution = Contribution(value, final=final, append=append)


class Void(Instruction[None, Never, None]):
    """``ctx.void()``: no result, no contribution."""

    method = "void"


@dataclass(frozen=True, slots=True)
class NextStep:
    """One ``.next``: these works follow once the ones before meet the condition."""

    works: tuple[WorkRequest[Any, Any], ...]
    condition: Condition
    options: QueueOptions


class Queue(Instruction[None, G_co, None]):
    """``ctx.queue(works)``: these works join the group; the work itself has no result of its own."""

    method = "queue"

    def __init__(self, context: object, items: Any, options: QueueOptions) -> None:
        super().__init__(context)
        self.items: list[QueueItem] = list(flattened(items))
        refuse_of_enqueue(options, "ctx.queue(...)")
        require_own_identity(self.items, "ctx.queue(...)")
        self.options = options
        self.links: list[NextStep] = []

    def next(
        self,
        works: WorkRequest[Any, H] | Iterable[WorkRequest[Any, H]],
        condition: Condition = "all-success",
        **options: Unpack[QueueOptions],
    ) -> Queue[G_co | H]:
        """Queue ``works`` once the works of the link before meet the condition; links can be chained.

        Options apply to the next works. Raises ValueError for a condition the works cannot meet.
        """
        require_condition(condition, len({work.id for work in self.last_watched()}))
        followers = tuple(require_new(works, "next(works)"))
        given = checked(options)
        refuse_of_enqueue(given, "next(works)")
        self.links.append(NextStep(followers, condition, given))
        return self

    def last_watched(self) -> Iterator[WorkRequest[Any, Any]]:
        """Return the works that the next link waits for."""
        return iter(self.links[-1].works) if self.links else requests_of(self.items)


class Continue(Instruction[None, G_co, S_co]):
    """``ctx.continue_with(work)``: the chain goes on with this work."""

    method = "continue_with"

    def __init__(self, context: object, work: WorkRequest[Any, G_co, S_co], options: QueueOptions) -> None:
        super().__init__(context)
        self.work = work
        self.options = options


QueueItem: TypeAlias = WorkRequest[Any, Any] | Instruction[Any, Any]


def flattened(items: Any) -> Iterator[QueueItem]:
    """Return the requests and instructions of a possibly nested list, in order."""
    if isinstance(items, (WorkRequest, Instruction)):
        yield items
    elif isinstance(items, Iterable) and not isinstance(items, (str, bytes, dict)):
        for item in items:
            if isinstance(item, WorkRequest):  # most are
                yield item
            else:
                yield from flattened(item)
    else:
        raise type_error(
            "not-a-built-work",
            "expected ctx.queue(...) to have works built by calling their type, such as add(a=1, b=2), "
            f"or instructions of this context, got: {items!r}.{how_to_build(items)}",
        )


def requests_of(items: Iterable[QueueItem]) -> Iterator[WorkRequest[Any, Any]]:
    """Return every request of the items, nested instructions and their links included."""
    for item in items:
        if isinstance(item, WorkRequest):
            yield item
        elif isinstance(item, Queue):
            yield from requests_of(item.items)
            for link in item.links:
                yield from link.works


def nodes_of(instruction: Instruction[Any, Any]) -> Iterator[Instruction[Any, Any]]:
    """Return the instruction and every one nested in it, in list order."""
    yield instruction
    if isinstance(instruction, Queue):
        for item in instruction.items:
            if isinstance(item, Instruction):
                yield from nodes_of(item)
