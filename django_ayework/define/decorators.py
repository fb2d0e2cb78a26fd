"""``@work`` and ``@batch_work``: a function becomes a type of work."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Literal, Never, Protocol, TypedDict, Unpack, cast, overload

from django_ayework.define.context import Context
from django_ayework.define.handles import C, G, P, R, T
from django_ayework.define.instructions import Instruction
from django_ayework.define.options import (
    MAX_TYPE_LENGTH,
    Middleware,
    WorkSettings,
    checked_settings,
    whole_number,
)
from django_ayework.define.schedules import schedules
from django_ayework.define.types import (
    AnyWorkType,
    BatchItem,
    BatchType,
    WorkType,
    default_name,
    registry,
    required_inputs,
)
from django_ayework.doers import Doer
from django_ayework.errors import ImproperWork, did_you_mean
from django_ayework.rules.codec import Codec
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.retry import Retry
from django_ayework.rules.signatures import signature_of

# The options as type checkers see them. WorkSettings has their checks and defaults.


class TypeOptions(TypedDict, total=False):
    """The options that both decorators take."""

    name: str | None
    queue: str
    priority: int
    fairness: str | None
    retry: Retry | None
    timeout: Seconds | None
    expires: Seconds | None
    lease: Seconds | None
    order: Literal["time", "unit"] | None
    weight: int
    max_running: int
    codec: Codec | None
    options: Callable[..., Mapping[str, Any] | None] | None
    on_event: Callable[[Any], object] | str | None
    on_failure: Callable[[Exception, Any], object] | str | None
    schedulable: bool
    redact: Sequence[str]
    retention: Mapping[str, Seconds | None]
    doer: Doer | None
    keep_attempts: bool


class WorkOptions(TypeOptions, total=False):
    """The options of ``@work``."""

    atomic: bool
    then: str | None
    interval: Seconds | None
    strict_return: bool | None
    log_context: Callable[[Mapping[str, Any], str], object] | str | None
    middleware: Sequence[Middleware | str]
    interrupt: bool
    skip_queue: bool


class BatchOptions(TypeOptions, total=False):
    """The options of ``@batch_work``."""

    size: int
    max_wait: Seconds


class Unannotated:
    """A type that no annotation names: it matches parameters and results without one, or with ``Any``."""


class WorkDecorator(Protocol):
    """``@work`` as type checkers see it: the types of results follow from the annotations of the handler.

    The first form that fits counts. Without annotations nothing is known. Instructions are annotated with the
    result and the contribution; None is neither; any other value is both.
    """

    @overload
    def __call__(
        self, handler: Callable[Concatenate[Unannotated, ...], object], /
    ) -> WorkType[..., Any, Any]: ...
    @overload
    def __call__(
        self,
        handler: Callable[Concatenate[Context, P], Awaitable[Instruction[R, G, C]] | Instruction[R, G, C]],
        /,
    ) -> WorkType[P, R, G, C]: ...
    @overload
    def __call__(
        self, handler: Callable[P, Awaitable[Unannotated] | Unannotated], /
    ) -> WorkType[P, Any, Any]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Context, P], Awaitable[None] | None], /
    ) -> WorkType[P, None, Never]: ...
    @overload
    def __call__(self, handler: Callable[P, Awaitable[None] | None], /) -> WorkType[P, None, Never]: ...
    @overload
    def __call__(
        self,
        handler: Callable[
            Concatenate[Context, P], Awaitable[Instruction[R, G, C] | None] | Instruction[R, G, C] | None
        ],
        /,
    ) -> WorkType[P, R | None, G, C | None]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], Awaitable[R]], /) -> WorkType[P, R, R]: ...
    @overload
    def __call__(self, handler: Callable[P, Awaitable[R]], /) -> WorkType[P, R, R]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], R], /) -> WorkType[P, R, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> WorkType[P, R, R]: ...
    @overload
    def __call__(self, **options: Unpack[WorkOptions]) -> WorkDecorator: ...


def typed(decorator: Callable[..., Any]) -> WorkDecorator:
    """Return the function unchanged, with the types of ``@work``."""
    return decorator


@typed
def work(handler: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a type of work, named ``"<app_label>.<function name>"`` unless ``name=`` is given.

    The options are the defaults of every work of this type. Durations are seconds or timedelta.

    - ``queue`` ("default"), ``priority`` (0; larger first) and ``fairness`` (a label; works of different
      labels are served in turn) say where and when a work is claimed.
    - ``retry`` is a ``Retry``. ``timeout`` limits one attempt, ``expires`` the whole life, and ``lease`` the
      silence of the worker.
    - ``atomic`` makes the handler and the outcome one transaction. ``interrupt`` raises the abort inside a
      plain handler. ``strict_return`` lets an attempt fail that built an instruction and did not return it.
    - ``then`` names the type that works on the output. ``order`` of works of equal priority is "time" or
      "unit"; the default is "unit" for types that others name with ``then``.
    - ``weight`` (20) is the share of the queue. ``max_running`` limits the works that run at a time in all
      workers (0 is no limit). ``interval`` makes the type continuous.
    - ``doer`` runs the works, instead of the worker's slots. ``skip_queue`` makes the first attempt in the
      process that enqueues the work.
    - ``codec`` stores input and result. ``options(**input)`` returns queueing options of one work.
    - ``on_event``, ``on_failure`` and ``log_context(input, type)`` are hooks. ``middleware`` surrounds the
      handler, inside the middleware of the settings.
    - ``redact`` lists paths into the input that people are not shown. ``schedulable`` allows schedules in the
      admin. ``retention`` says how long ended works are kept, by status. ``keep_attempts`` keeps attempts
      that succeed, too.

    Raises ImproperWork when the function cannot be a work, and TypeError or ValueError for an option that
    cannot be used.

    Example::

        @work(queue="mail", retry=Retry(attempts=5))
        def send_receipt(order_id: int) -> str: ...
    """
    return functools.partial(work, **options) if handler is None else describe(handler, **options)


def describe(handler: Callable[..., Any], *, name: str | None = None, **options: Any) -> AnyWorkType:
    """Build the type and register it."""
    require_function(handler, "@work")
    settings = checked_settings(options, "@work")
    require_plain(handler, settings)
    name = default_name(handler, "@work") if name is None else name
    work_type: AnyWorkType = WorkType(handler, name, settings)
    require_startable(work_type)
    return registered(work_type)


class BatchDecorator(Protocol):
    """``@batch_work`` as type checkers see it: inputs and results follow from the annotations of the handler.

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
    def __call__(self, **options: Unpack[BatchOptions]) -> BatchDecorator: ...


def typed_batch(decorator: Callable[..., Any]) -> BatchDecorator:
    """Return the function unchanged, with the types of ``@batch_work``."""
    return decorator


@typed_batch
def batch_work(handler: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a type of work whose works are queued one by one and run together.

    The handler is given a list of ``BatchItem`` (``.input``, ``.id``, ``.attempt``) and returns a list with
    one output per item, in the same order. It is called once ``size`` (50) works have gathered, or
    ``max_wait`` (0.1 seconds) after the first of them. An output that is an exception fails its item alone.
    An exception that the handler raises fails every item, and each is retried by its own policy.

    The other options are those of ``@work``, except those that cannot apply to many works at once, such as
    ``atomic`` and ``then``. ``options`` is a function of the one input.

    Raises ImproperWork when the function cannot be a batch, InvalidOption for a size that cannot be used.

    Example::

        @batch_work(size=50, max_wait=0.1)
        def embed(items: list[BatchItem[str]]) -> list[list[float]]:
            return model.encode([item.input for item in items])

        embed.enqueue("text")
    """
    return functools.partial(batch_work, **options) if handler is None else describe_batch(handler, **options)


#: The options of ``@work`` that a batch cannot have, and why.
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


def describe_batch(
    handler: Callable[..., Any],
    *,
    name: str | None = None,
    size: int = 50,
    max_wait: Seconds = 0.1,
    **options: Any,
) -> AnyWorkType:
    """Build the type and register it."""
    require_function(handler, "@batch_work")
    if refused := next((key for key in options if key in REFUSED), None):
        raise ImproperWork(
            f"{refused}= does not go with @batch_work: {REFUSED[refused]}; use @work, or leave it out.",
            code="batch-option-refused",
        )
    settings = checked_settings(options, "@batch_work", besides=("size", "max_wait"))
    name = default_name(handler, "@batch_work") if name is None else name
    size = whole_number(1)(size, "size")
    return registered(BatchType(handler, name, settings, size, seconds(max_wait, "max_wait")))


def registered(work_type: AnyWorkType) -> AnyWorkType:
    """Check the name and the paths of ``redact=``, and add the type to the registry."""
    require_type_name(work_type.name)
    require_inputs(work_type.name, work_type.signature, work_type.settings.redact)
    registry.register(work_type)
    return work_type


def require_function(handler: object, decorator: str) -> None:
    """Raise unless the decorated thing is a function that runs when it is called."""
    is_callable = callable(handler) and hasattr(handler, "__qualname__")
    if not is_callable or isinstance(handler, (str, type, WorkType)):
        hint = " Move it out of the class." if isinstance(handler, classmethod) else ""
        if isinstance(handler, str):
            hint = f" Write {decorator}(name={handler!r})."
        raise ImproperWork(
            f"expected {decorator} to decorate a function, got: {handler!r}.{hint}", code="not-a-function"
        )
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ImproperWork(
            f"expected {decorator} to decorate a plain or async function, "
            f"got the generator {handler.__qualname__}().",
            code="not-a-function",
        )
    require_no_method(cast("Callable[..., Any]", handler), decorator)
    require_not_scheduled(cast("Callable[..., Any]", handler), decorator)


def require_no_method(handler: Callable[..., Any], decorator: str) -> None:
    """Raise for a function of a class that expects its object: a worker has none to give."""
    name = handler.__qualname__
    owner = name.rpartition(".")[0]
    is_in_class = bool(owner) and not owner.endswith("<locals>")
    first = next(iter(signature_of(handler).parameters), None)
    if is_in_class and first in ("self", "cls") and not inspect.ismethod(handler):
        raise ImproperWork(
            f"expected {decorator} to decorate a function, got the method "
            f"{name}({first}, …): "
            "a worker has no object to call it on. Move it out of the class, and give it what it needs as "
            "inputs, such as a primary key.",
            code="method-as-work",
        )


def require_not_scheduled(handler: Callable[..., Any], decorator: str) -> None:
    """Raise when ``@schedule`` came first: the schedule would call the function, and queue nothing."""
    for declared in schedules:
        if declared.run is handler:
            declared.cancel()
            raise ImproperWork(
                f"expected @schedule above {decorator}, got {decorator} above @schedule for "
                f"{handler.__qualname__}(): the schedule would call the function itself, and queue no work. "
                f"Write @schedule(…) in the line above {decorator}.",
                code="schedule-below-work",
            )


def require_plain(handler: Callable[..., Any], settings: WorkSettings) -> None:
    """Raise when an async handler has an option that only plain functions can have.

    Django's transactions belong to plain code, and an async handler shares its thread with all others.
    """
    name = handler.__qualname__
    if settings.atomic and inspect.iscoroutinefunction(handler):
        raise ImproperWork(
            f"atomic=True needs a plain function, and {name}() is async, as transactions of "
            "Django are for plain code; write it with def, or use await ctx.acomplete(...).",
            code="atomic-async",
        )
    if settings.interrupt and inspect.iscoroutinefunction(handler):
        raise ImproperWork(
            f"interrupt=True needs a plain function, and {name}() is async: its timeout "
            "cancels it without this option; leave interrupt out, and watch ctx.signal for other reasons to "
            "stop.",
            code="interrupt-async",
        )


def require_type_name(name: object) -> None:
    """Raise unless the name can be stored and is that of one function; names that begin with @ are taken."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TYPE_LENGTH or not name.isprintable():
        raise ImproperWork(
            f"expected a type name to be 1 to {MAX_TYPE_LENGTH} printable characters, got: {name!r}.",
            code="type-name-not-usable",
        )
    if name.startswith("@"):
        raise ImproperWork(
            f"type names beginning with @ are reserved, got: {name!r}.", code="type-name-not-usable"
        )
    if name.endswith("<lambda>"):  # the work of one would run another of the same module
        raise ImproperWork(
            f"{name} is the name of every lambda; write the function with def.", code="type-name-not-usable"
        )


def require_inputs(name: str, signature: inspect.Signature, paths: Iterable[str]) -> None:
    """Raise unless each path of ``redact=`` begins at an input: a misspelt one would hide nothing."""
    inputs = signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in inputs.values()):
        return
    for path in paths:
        if (first := path.partition(".")[0]) not in inputs:
            raise ImproperWork(
                f"expected redact= of {name!r} to name its inputs ({', '.join(inputs)}), "
                f"got: {path!r}.{did_you_mean(first, inputs)}",
                code="redact-unknown-input",
            )


def require_startable(work_type: AnyWorkType) -> None:
    """Raise for a continuous type whose works need an input, or would skip the queue: workers queue them."""
    if work_type.settings.interval is None:
        return
    if missing := required_inputs(work_type.signature):
        raise ImproperWork(
            f"interval= makes {work_type.name!r} continuous: its works are queued without input, so "
            f"{', '.join(missing)} needs a default.",
            code="continuous-needs-defaults",
        )
    if work_type.settings.skip_queue:
        raise ImproperWork(
            f"expected interval= or skip_queue=True, got both for {work_type.name!r}: works of a continuous "
            "type are queued by workers, which start them at once; leave skip_queue out.",
            code="continuous-skips-queue",
        )
