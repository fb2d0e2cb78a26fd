"""``@batch_work``: a function becomes a type of work that is run for many works at a time."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Never, Protocol, TypeVar, overload

from django_ayework.define.batch_type import BatchItem, BatchType
from django_ayework.define.redaction import require_inputs
from django_ayework.define.registry import registry
from django_ayework.define.seams import default_name
from django_ayework.define.type_options import checked_settings
from django_ayework.define.works import Unannotated, require_function, require_type_name
from django_ayework.doers import Doer
from django_ayework.errors import ImproperWork, InvalidOption
from django_ayework.rules.backoff import Retry
from django_ayework.rules.codec import Codec
from django_ayework.rules.durations import Seconds, seconds

T = TypeVar("T")
R = TypeVar("R")

#: What ``@work`` has and a batch cannot have, and why.
REFUSED = {
    "atomic": "one transaction would undo the works that did well with the one that failed",
    "interrupt": "an interruption meant for one work would end the run of all",
    "interval": "a continuous type has no works that could be gathered",
    "log_context": "one run is about many works",
    "middleware": "middleware surrounds the run of one work, with its context",
    "skip_queue": "a work that starts at once cannot wait for others",
    "strict_return": "its handler has no context, so it builds no instructions",
    "then": "its handler has no context to output units with",
}


class BatchDecorator(Protocol):
    """How ``@batch_work`` is seen by type checkers: the handler says what goes in, and what comes out.

    The first form that fits counts. Without annotations nothing is known; an output that is None is no
    contribution; an exception among the outputs is no result.
    """

    @overload
    def __call__(self, handler: Callable[[Unannotated], object], /) -> BatchType[[Any], Any, Any]: ...
    @overload
    def __call__(
        self, handler: Callable[[list[BatchItem[T]]], Awaitable[Unannotated] | Unannotated], /
    ) -> BatchType[[T], Any, Any]: ...
    @overload
    def __call__(
        self,
        handler: Callable[[list[BatchItem[T]]], Awaitable[Sequence[Unannotated]] | Sequence[Unannotated]],
        /,
    ) -> BatchType[[T], Any, Any]: ...
    @overload
    def __call__(
        self,
        handler: Callable[
            [list[BatchItem[T]]], Awaitable[Sequence[Exception | None]] | Sequence[Exception | None]
        ],
        /,
    ) -> BatchType[[T], None, Never]: ...
    @overload
    def __call__(
        self, handler: Callable[[list[BatchItem[T]]], Awaitable[Sequence[R | Exception]]], /
    ) -> BatchType[[T], R, R]: ...
    @overload
    def __call__(
        self, handler: Callable[[list[BatchItem[T]]], Sequence[R | Exception]], /
    ) -> BatchType[[T], R, R]: ...
    @overload
    def __call__(
        self,
        *,
        size: int = ...,
        max_wait: Seconds = ...,
        name: str | None = ...,
        queue: str = ...,
        priority: int = ...,
        fairness: str | None = ...,
        retry: Retry | None = ...,
        timeout: Seconds | None = ...,
        expires: Seconds | None = ...,
        lease: Seconds | None = ...,
        order: Literal["time", "unit"] | None = ...,
        doer: Doer | None = ...,
        weight: int = ...,
        max_running: int = ...,
        codec: Codec | None = ...,
        options: Callable[[Any], Mapping[str, Any] | None] | None = ...,
        on_event: Callable[[Any], object] | str | None = ...,
        on_failure: Callable[[Exception, Any], object] | str | None = ...,
        schedulable: bool = ...,
        redact: Sequence[str] = ...,
        retention: Mapping[str, Seconds | None] = ...,
    ) -> BatchDecorator: ...


def typed(decorator: Callable[..., Any]) -> BatchDecorator:
    """Return the function unchanged; its signature says nothing, so type checkers are shown another."""
    return decorator


@typed
def batch_work(handler: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a type of work whose works are queued one by one and run together.

    The handler is given a list of ``BatchItem`` (``.input``, ``.id``, ``.attempt``) and returns a list with
    one output per item, in the same order. It is called once ``size`` (50) works have gathered, or
    ``max_wait`` (0.1 seconds) after the first of them. An output that is an exception fails its item alone;
    an exception that is raised fails every item, each by its own policy.

    The other options are those of ``@work`` but for what cannot be said of many works at once, such as
    ``atomic`` and ``then``. ``options`` is a function of the one input.

    Raises ImproperWork when the function cannot be a batch, InvalidOption for a size that cannot be used.

    Example::

        @batch_work(size=50, max_wait=0.1)
        def embed(items: list[BatchItem[str]]) -> list[list[float]]:
            return model.encode([item.input for item in items])

        embed.enqueue("text")
    """
    if handler is None:
        return functools.partial(batch_work, **options)
    return describe_batch(handler, **options)


def describe_batch(
    handler: Callable[..., Any],
    *,
    name: str | None = None,
    size: int = 50,
    max_wait: Seconds = 0.1,
    **options: Any,
) -> BatchType[..., Any, Any]:
    """Build the type and register it."""
    require_function(handler, "@batch_work")
    refuse_options_of_one(options)
    batch_type: BatchType[..., Any, Any] = BatchType(
        handler,
        default_name(handler, "@batch_work") if name is None else name,
        checked_settings(options, "@batch_work", besides=("size", "max_wait")),
        check_size(size),
        seconds(max_wait, "max_wait"),
    )
    require_type_name(batch_type.name)
    require_inputs(batch_type.signature, batch_type.name, batch_type.settings.redact)
    registry.register(batch_type)
    return batch_type


def refuse_options_of_one(options: Mapping[str, Any]) -> None:
    """Raise for an option that makes sense for one work at a time only."""
    for key in options:
        if key in REFUSED:
            raise ImproperWork(
                f"{key}= does not go with @batch_work: {REFUSED[key]}; use @work, or leave it out."
            )


def check_size(value: object) -> int:
    """Return how many works a batch has at most."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(f"expected size to be a whole number, 1 or more, got: {value!r}.")
    return value
