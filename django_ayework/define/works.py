"""``@work``: a function becomes a type of work."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Concatenate, Generic, Never, ParamSpec, Protocol, TypeVar, cast, overload

from django_ayework.define import seams
from django_ayework.define.context import Context
from django_ayework.define.handles import Handle
from django_ayework.define.instructions import Instruction
from django_ayework.define.options import QueueOptions, check_name, check_priority, check_retry, checked
from django_ayework.define.registry import registry
from django_ayework.define.requests import WorkRequest
from django_ayework.define.signature import bind, input_signature, wants_context
from django_ayework.errors import ImproperWork, did_you_mean
from django_ayework.rules.backoff import Retry
from django_ayework.rules.codec import Codec
from django_ayework.rules.durations import Seconds, seconds

P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G")
R_co = TypeVar("R_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)

MAX_TYPE_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings:
    """What a type says about how its works are queued and run; None leaves it to the next level down."""

    queue: str | None = None
    priority: int | None = None
    fairness: str | None = None
    retry: Retry | None = None
    timeout: float | None = None
    expires: float | None = None
    lease: float | None = None
    strict_return: bool | None = None
    codec: Codec | None = None
    options: Callable[..., Mapping[str, Any]] | None = None
    on_event: Callable[[Any], object] | str | None = None
    on_failure: Callable[[Exception, Any], object] | str | None = None


class WorkType(Generic[P, R_co, G_co]):
    """A type of work: call it to build a request, or use ``.enqueue(...)`` to build and queue one.

    ``handler`` is the plain function, ``name`` the type name.
    """

    def __init__(self, handler: Callable[..., Any], name: str, settings: WorkSettings) -> None:
        functools.update_wrapper(self, handler)
        self.handler = handler
        self.name = name
        self.settings = settings
        self.takes_context = wants_context(handler)
        self.is_async = inspect.iscoroutinefunction(handler)
        self.signature = input_signature(handler)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> WorkRequest[R_co, G_co]:
        """Build a request; nothing is queued yet. Raises TypeError when the arguments do not fit."""
        return self.request(bind(self.signature, self.name, args, kwargs))

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co, G_co]:
        """Build a request and queue it in the current transaction; return its handle."""
        return seams.enqueue(self(*args, **kwargs))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co, G_co]:
        """See enqueue()."""
        return await seams.aenqueue(self(*args, **kwargs))

    def request(self, arguments: Mapping[str, Any]) -> WorkRequest[R_co, G_co]:
        """Build a request from arguments by name, which must have been checked."""
        computed = self.settings.options(**arguments) if self.settings.options else {}
        return WorkRequest(type=self.name, input=arguments, work_type=self, options=checked(computed or {}))

    def build(self, arguments: Mapping[str, Any]) -> WorkRequest[R_co, G_co]:
        """Build a request from arguments by name. Raises TypeError when they do not fit."""
        return self.request(bind(self.signature, self.name, (), arguments))

    def __repr__(self) -> str:
        return f"<WorkType {self.name}>"


class Unannotated:
    """What no annotation names: only a parameter or a result without one (or with ``Any``) goes with it."""


class WorkDecorator(Protocol):
    """How ``@work`` is seen by type checkers: what is known of a type follows from its handler.

    The first form that fits counts. Without annotations nothing is known; instructions say what the result
    and the contribution are; None is neither; any other value is both.
    """

    @overload
    def __call__(
        self, handler: Callable[Concatenate[Unannotated, ...], object], /
    ) -> WorkType[..., Any, Any]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Context, P], Awaitable[Instruction[R, G]] | Instruction[R, G]], /
    ) -> WorkType[P, R, G]: ...
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
            Concatenate[Context, P], Awaitable[Instruction[R, G] | None] | Instruction[R, G] | None
        ],
        /,
    ) -> WorkType[P, R | None, G]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], Awaitable[R]], /) -> WorkType[P, R, R]: ...
    @overload
    def __call__(self, handler: Callable[P, Awaitable[R]], /) -> WorkType[P, R, R]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], R], /) -> WorkType[P, R, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> WorkType[P, R, R]: ...
    @overload
    def __call__(
        self,
        *,
        name: str | None = ...,
        queue: str = ...,
        priority: int = ...,
        fairness: str | None = ...,
        retry: Retry | None = ...,
        timeout: Seconds | None = ...,
        expires: Seconds | None = ...,
        lease: Seconds | None = ...,
        strict_return: bool | None = ...,
        codec: Codec | None = ...,
        options: Callable[..., Mapping[str, Any]] | None = ...,
        on_event: Callable[[Any], object] | str | None = ...,
        on_failure: Callable[[Exception, Any], object] | str | None = ...,
    ) -> WorkDecorator: ...


def typed(decorator: Callable[..., Any]) -> WorkDecorator:
    """Return the function unchanged; its signature says nothing, so type checkers are shown another."""
    return decorator


@typed
def work(handler: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a type of work, named ``"<app_label>.<function name>"`` unless ``name=`` is given.

    The options are the defaults of every work of this type: ``queue`` ("default"), ``priority`` (0; larger
    first), ``fairness``, ``retry``, ``timeout`` (bounds one attempt), ``expires`` (bounds the whole life),
    ``lease``, ``strict_return``, ``codec``, ``options(**input)`` (computes queueing options), ``on_event``
    and ``on_failure``. Durations are seconds or timedelta.

    Raises ImproperWork when the function cannot be a work.

    Example::

        @work(queue="mail", retry=Retry(attempts=5))
        def send_receipt(order_id: int) -> str: ...
    """
    if handler is None:
        return functools.partial(work, **options)
    return describe(handler, **options)


def describe(
    handler: Callable[..., Any], *, name: str | None = None, **options: Any
) -> WorkType[..., Any, Any]:
    """Build the type and register it."""
    require_function(handler)
    settings = checked_settings(options)
    work_type: WorkType[..., Any, Any] = WorkType(
        handler, default_name(handler) if name is None else name, settings
    )
    require_type_name(work_type.name)
    registry.register(work_type)
    return work_type


def require_function(handler: object) -> None:
    """Raise unless the decorated thing is a function whose inputs can be stored by name."""
    is_callable = callable(handler) and hasattr(handler, "__qualname__")
    if not is_callable or isinstance(handler, (str, type, WorkType)):
        raise ImproperWork(f"expected @work to decorate a function, got: {handler!r}.")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise ImproperWork(
            "expected @work to decorate a plain or async function, "
            f"got the generator {handler.__qualname__}()."
        )


def default_name(handler: Callable[..., Any]) -> str:
    """Return ``"<app_label>.<function name>"``; raise when the function is in no installed app."""
    label = seams.app_label_of(handler.__module__)
    if label is None:
        raise ImproperWork(
            f"{handler.__module__}.{handler.__qualname__} is in no installed app, so it has no type name; "
            'give one: @work(name="...").'
        )
    return f"{label}.{handler.__name__}"


def require_type_name(name: object) -> None:
    """Raise unless the name can be stored; names beginning with @ are reserved."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TYPE_LENGTH or not name.isprintable():
        raise ImproperWork(
            f"expected a type name to be 1 to {MAX_TYPE_LENGTH} printable characters, got: {name!r}."
        )
    if name.startswith("@"):
        raise ImproperWork(f"type names beginning with @ are reserved, got: {name!r}.")


def checked_settings(options: Mapping[str, Any]) -> WorkSettings:
    """Return the options of ``@work`` with their values checked; unknown ones raise TypeError."""
    checks: dict[str, Callable[[Any, str], Any]] = {
        "queue": check_name,
        "priority": check_priority,
        "fairness": check_name,
        "retry": check_retry,
        "timeout": seconds,
        "expires": seconds,
        "lease": seconds,
    }
    known = [field.name for field in fields(WorkSettings)]
    for key in options:
        if key not in known:
            raise TypeError(f"{key!r} is not an option of @work.{did_you_mean(key, ['name', *known])}")
    given = {
        key: checks[key](value, key) if key in checks else value
        for key, value in options.items()
        if value is not None
    }
    return WorkSettings(**given)


def type_options(work_type: WorkType[..., Any, Any] | None) -> QueueOptions:
    """Return the type's constants, as options of the level below the request's own."""
    if work_type is None:
        return {}
    names = ("queue", "priority", "fairness", "retry", "timeout", "expires", "lease")
    constants = {name: getattr(work_type.settings, name) for name in names}
    return cast(QueueOptions, {name: value for name, value in constants.items() if value is not None})
