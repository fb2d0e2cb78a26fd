"""``enqueue`` and ``aenqueue`` of works by name, with the types of their inputs and results.

Written by manage.py ayework_typing. Changes are lost when the command runs again.
"""
# ruff: noqa
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Never, NotRequired, Protocol, TypedDict, TypeVar, Unpack, cast, overload

import django_ayework
from django_ayework import EnqueueOptions, Handle, WorkRequest

if TYPE_CHECKING:
    import collections.abc
    import datetime
    import decimal
    import tests.typing.works
    import uuid

R = TypeVar("R")
G = TypeVar("G")
C = TypeVar("C")

TypingAddInput = TypedDict("TypingAddInput", {
    "a": "int",
    "b": NotRequired["int"],
})

TypingDeliverInput = TypedDict("TypingDeliverInput", {
    "day": "datetime.date",
    "to": "tests.typing.works.Place | None",
    "size": "tests.typing.works.Size",
    "speed": 'Literal[\'slow\', \'"fast"\', 3]',
    "weights": "dict[str, list[decimal.Decimal]]",
})

TypingMaybeInput = TypedDict("TypingMaybeInput", {
    "wanted": NotRequired["bool"],
})

TypingPlainInput = TypedDict("TypingPlainInput", {
    "uuid": "uuid.UUID",
})

TypingSplitInput = TypedDict("TypingSplitInput", {
    "ids": "collections.abc.Sequence[uuid.UUID]",
    "pair": "tuple[int, ...]",
    "note": "str",
})

TypingTotalInput = TypedDict("TypingTotalInput", {
    "until": "datetime.datetime",
})


class Enqueue(Protocol):
    """Enqueues a work, given by name and input or as a request."""

    @overload
    def __call__(
        self,
        work: Literal["typing.add"],
        input: TypingAddInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[int, str, int]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.deliver"],
        input: TypingDeliverInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[tests.typing.works.Place, tests.typing.works.Place, tests.typing.works.Place]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.embed"],
        input: str,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[list[float], list[float], list[float]]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.hand_over"],
        input: dict[str, Any] | None = None,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, int, str]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.loose"],
        input: dict[str, Any] | None = None,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[Any, Any, Any]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.maybe"],
        input: TypingMaybeInput | None = None,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, str, None]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.note"],
        input: dict[str, Any],
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, Never, None]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.nothing"],
        input: dict[str, Any] | None = None,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, Never, None]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.plain"],
        input: TypingPlainInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, Never, None]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.split"],
        input: TypingSplitInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, int, None]: ...
    @overload
    def __call__(
        self,
        work: Literal["typing.total"],
        input: TypingTotalInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[decimal.Decimal, decimal.Decimal, decimal.Decimal]: ...
    @overload
    def __call__(self, work: WorkRequest[R, G, C], /, **options: Unpack[EnqueueOptions]) -> Handle[R, G, C]: ...


class AsyncEnqueue(Protocol):
    """Enqueues a work, given by name and input or as a request."""

    @overload
    async def __call__(
        self,
        work: Literal["typing.add"],
        input: TypingAddInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[int, str, int]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.deliver"],
        input: TypingDeliverInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[tests.typing.works.Place, tests.typing.works.Place, tests.typing.works.Place]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.embed"],
        input: str,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[list[float], list[float], list[float]]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.hand_over"],
        input: dict[str, Any] | None = None,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, int, str]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.loose"],
        input: dict[str, Any] | None = None,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[Any, Any, Any]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.maybe"],
        input: TypingMaybeInput | None = None,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, str, None]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.note"],
        input: dict[str, Any],
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, Never, None]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.nothing"],
        input: dict[str, Any] | None = None,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, Never, None]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.plain"],
        input: TypingPlainInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, Never, None]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.split"],
        input: TypingSplitInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[None, int, None]: ...
    @overload
    async def __call__(
        self,
        work: Literal["typing.total"],
        input: TypingTotalInput,
        /,
        **options: Unpack[EnqueueOptions],
    ) -> Handle[decimal.Decimal, decimal.Decimal, decimal.Decimal]: ...
    @overload
    async def __call__(self, work: WorkRequest[R, G, C], /, **options: Unpack[EnqueueOptions]) -> Handle[R, G, C]: ...


enqueue = cast(Enqueue, django_ayework.enqueue)
aenqueue = cast(AsyncEnqueue, django_ayework.aenqueue)
