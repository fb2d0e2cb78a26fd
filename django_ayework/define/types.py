"""A type of work: its handler, its name, its settings, and how its handler is called."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, cast

from django_ayework.define import providers
from django_ayework.define.context import Context
from django_ayework.define.handles import Handle
from django_ayework.define.options import QueueOptions, checked
from django_ayework.define.requests import WorkRequest, note, watch
from django_ayework.doers import Doer
from django_ayework.errors import ImproperWork, InvalidOption, no_attribute
from django_ayework.rules.codec import Codec
from django_ayework.rules.controls import DEFAULT_WEIGHT
from django_ayework.rules.retry import Retry

# --- signature ---
# How a handler can be called: its inputs are named, and the context comes first if it wants one.

REFUSED_KINDS = {
    Parameter.POSITIONAL_ONLY: "a positional-only parameter",
    Parameter.VAR_POSITIONAL: "a *args parameter",
}
POSITIONAL_KINDS = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def wants_context(handler: Callable[..., Any]) -> bool:
    """Tell whether the first parameter is named ``ctx`` or annotated ``Context``, be it as a string.

    >>> def add(ctx, a): ...
    >>> wants_context(add)
    True
    """
    first = next(iter(inspect.signature(handler).parameters.values()), None)
    return first is not None and first.kind in POSITIONAL_KINDS and is_context(first)


def is_context(parameter: Parameter) -> bool:
    """Tell whether a parameter asks for the context, by its name or its annotation."""
    return parameter.name == "ctx" or names_context(parameter.annotation)


def names_context(annotation: Any) -> bool:
    """Tell whether an annotation is the Context class, or its name (another package's class is not)."""
    if isinstance(annotation, str):
        return annotation.strip("'\"").rpartition(".")[2] == "Context"
    return isinstance(annotation, type) and issubclass(annotation, Context)


def input_signature(handler: Callable[..., Any]) -> Signature:
    """Return the signature of the handler's inputs, without the context.

    Raises ImproperWork for parameters that cannot be given by name.
    """
    signature = inspect.signature(handler)
    parameters = list(signature.parameters.values())[1 if wants_context(handler) else 0 :]
    for parameter in parameters:
        if parameter.kind in REFUSED_KINDS:
            raise ImproperWork(
                f"expected the inputs of {handler.__qualname__}() to be named parameters, "
                f"got {REFUSED_KINDS[parameter.kind]} ({parameter.name!r}); inputs are stored by name."
            )
        if is_context(parameter):
            raise ImproperWork(
                f"expected the context to be the first parameter of {handler.__qualname__}(), "
                f"got it as {str(parameter)!r} elsewhere."
            )
    return signature.replace(parameters=parameters)


def bind(signature: Signature, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by name; raise TypeError at once when they do not fit.

    Defaults stay out: the handler's own apply when it runs.
    """
    named = None if args else named_arguments(signature, kwargs)
    return bound_arguments(signature, name, args, kwargs) if named is None else named


def named_arguments(signature: Signature, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments given by name, in the order of the signature; None for what needs a closer look."""
    arguments: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if name in kwargs:
            arguments[name] = kwargs[name]
        elif parameter.default is Parameter.empty:
            return None
    return arguments if len(arguments) == len(kwargs) else None


def bound_arguments(
    signature: Signature, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a call's arguments as Python itself binds them, which takes ten times as long."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as misfit:
        expected, got = f"{name}{signature_text(signature)}", f"{name}{call_text(args, kwargs)}"
        raise TypeError(f"{name}: {misfit}; expected {expected}, got {got}") from None
    arguments = dict(bound.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(parameter.name, {}))
    return arguments


def call_text(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return which arguments a call has, without their values, which may be long or secret.

    >>> call_text((1,), {"b": 2})
    '(…, b=…)'
    """
    return f"({', '.join([*('…' for _ in args), *(f'{name}=…' for name in kwargs)])})"


def signature_text(signature: Signature) -> str:
    """Return the inputs as they are written in a call, without annotations."""
    bare = [p.replace(annotation=Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=Signature.empty))


# --- middleware ---
# Middlewares: functions of the project that surround the handler of every attempt.

logger = logging.getLogger("django_ayework")

#: ``def m(ctx, call_next): return call_next(**extra)``; or ``async def``, with ``await call_next(**extra)``.
Middleware: TypeAlias = Callable[[Context, Callable[..., Any]], Any]

#: What a context says itself; no extra goes by these names.
RESERVED = frozenset(name for name in {*dir(Context), "built", "extra", "signal"} if not name.startswith("_"))


def check_middleware(value: object, name: str) -> tuple[Middleware | str, ...]:
    """Return middlewares, given as a list of callables or dotted paths, the outermost first."""
    if not isinstance(value, (list, tuple)):
        raise InvalidOption(f"expected {name} to be a list of callables or dotted paths, got: {value!r}.")
    for position, middleware in enumerate(value):
        if not callable(middleware) and not (isinstance(middleware, str) and "." in middleware):
            raise InvalidOption(
                f"expected {name}[{position}] to be a callable or the dotted path of one, "
                f"got: {middleware!r}."
            )
    return tuple(value)


def enrich(context: Context, extra: Mapping[str, Any]) -> None:
    """Add what a middleware passes on to ``ctx.extra``; it wins over what outer ones passed.

    Names of the context's own are left out, and the log says so.
    """
    if not extra:
        return
    if taken := sorted(RESERVED.intersection(extra)):
        logger.warning(
            "A middleware around %s passed on %s, which the context says itself; choose other names.",
            context.type,
            ", ".join(map(repr, taken)),
        )
    added = {name: value for name, value in extra.items() if name not in RESERVED}
    context.extra = MappingProxyType({**context.extra, **added})


# --- work type ---
# A type of work: its handler, its name, its settings.

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)

#: How many sets of names are remembered to fit a signature.
FITTING = 64

#: The settings that are defaults of queueing options.
CONSTANTS = ("queue", "priority", "fairness", "retry", "timeout", "expires", "lease")


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
    atomic: bool = False
    then: str | None = None
    order: Literal["time", "unit"] | None = None
    weight: int = DEFAULT_WEIGHT
    max_running: int = 0
    interval: float | None = None
    strict_return: bool | None = None
    codec: Codec | None = None
    options: Callable[..., Mapping[str, Any]] | None = None
    on_event: Callable[[Any], object] | str | None = None
    on_failure: Callable[[Exception, Any], object] | str | None = None
    log_context: Callable[[Mapping[str, Any], str], object] | str | None = None
    middleware: tuple[Middleware | str, ...] = ()
    interrupt: bool = False
    skip_queue: bool = False
    schedulable: bool = False
    redact: tuple[str, ...] = ()
    retention: Mapping[str, float | None] | None = None
    doer: Doer | None = None


class WorkType(Generic[P, R_co, G_co]):
    """A type of work: call it to build a request, or use ``.enqueue(...)`` to build and queue one.

    ``handler`` is the plain function, ``name`` the type name.
    """

    def __init__(self, handler: Callable[..., Any], name: str, settings: WorkSettings) -> None:
        functools.update_wrapper(self, handler)
        self.handler = handler
        self.name = name
        self.settings = settings
        # Worked out once: every enqueue asks for them, and the settings are frozen.
        given = {name: getattr(settings, name) for name in CONSTANTS}
        constants = {name: value for name, value in given.items() if value is not None}
        self._constants = cast(QueueOptions, constants)
        self.takes_context = wants_context(handler)
        self.is_async = inspect.iscoroutinefunction(handler)
        self.signature = input_signature(handler)
        #: Names of arguments, in the order of the signature, that were found to fit it.
        self._fitting: set[tuple[str, ...]] = set()

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> WorkRequest[R_co, G_co]:
        """Build a request; nothing is queued yet. Raises TypeError when the arguments do not fit."""
        request = self.request(
            bind(self.signature, self.name, args, kwargs) if args else self.arguments(kwargs)
        )
        if watch.on:
            note(request, sys._getframe(1))
        return request

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co, G_co]:
        """Build a request and queue it in the current transaction; return its handle."""
        return providers.enqueue(self(*args, **kwargs))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co, G_co]:
        """See enqueue()."""
        return await providers.aenqueue(self(*args, **kwargs))

    def request(self, arguments: Mapping[str, Any]) -> WorkRequest[R_co, G_co]:
        """Build a request from arguments by name, which must have been checked."""
        options = checked(self.computed(arguments) or {}) if self.settings.options else QueueOptions()
        return WorkRequest(type=self.name, input=arguments, options=options)

    def computed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what the type's ``options=`` makes of an input."""
        compute = self.settings.options
        return compute(**{**self.defaults(), **arguments}) if compute else None

    def build(self, arguments: Mapping[str, Any]) -> WorkRequest[R_co, G_co]:
        """Build a request from arguments by name. Raises TypeError when they do not fit."""
        return self.request(self.arguments(arguments))

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name, checked. Raises TypeError when they do not fit."""
        names = tuple(given)
        if names in self._fitting:
            return dict(given)
        arguments = bind(self.signature, self.name, (), given)
        if tuple(arguments) == names and len(self._fitting) < FITTING:
            self._fitting.add(names)
        return arguments

    def defaults(self) -> dict[str, Any]:
        """Return the handler's own defaults by name, for ``options()`` to see what the handler will see."""
        parameters = self.signature.parameters.values()
        return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}

    def constants(self) -> QueueOptions:
        """Return the type's defaults, as options of the level below a request's own; not to be changed."""
        return self._constants

    def __repr__(self) -> str:
        return f"<WorkType {self.name}>"

    if not TYPE_CHECKING:  # which are to know the attributes that there are

        def __getattr__(self, name):
            """Raise AttributeError, suggesting the nearest attribute."""
            raise no_attribute(repr(type(self).__name__), name, ATTRIBUTES, meanings_for(self))


#: The attributes of a type that users need.
ATTRIBUTES = ("enqueue", "aenqueue", "handler", "name", "settings")


def meanings_for(work_type: WorkType[..., Any, Any]) -> Mapping[str, str]:
    """Return what attributes of a type are called elsewhere."""
    name = work_type.__dict__.get("__name__", "work")
    queue, with_options = f"{name}.enqueue(…)", f"enqueue({name}(…), delay=…)"
    return {
        "delay": queue,
        "adelay": f"{name}.aenqueue(…)",
        "defer": queue,
        "defer_async": f"{name}.aenqueue(…)",
        "send": queue,
        "submit": queue,
        "apply_async": with_options,
        "send_with_options": with_options,
        "schedule": with_options,
        "configure": with_options,
        "using": with_options,
        "apply": f"{name}.handler(…)",
        "call_local": f"{name}.handler(…)",
        "func": f"{name}.handler(…)",
        "fn": f"{name}.handler(…)",
        "run": f"{name}.handler(…)",
        "s": f"{name}(…)",
        "si": f"{name}(…)",
        "signature": f"{name}(…)",
        "message": f"{name}(…)",
    }


# --- batch type ---
# A type of work whose works are run many at a time.

T_co = TypeVar("T_co", covariant=True)

#: Under which name the one input of a batch's work is stored.
INPUT = "input"
SIGNATURE = Signature([Parameter(INPUT, Parameter.POSITIONAL_OR_KEYWORD)])


@dataclass(frozen=True, slots=True)
class BatchItem(Generic[T_co]):
    """One work of a batch, as the handler is given it: its input, its id, and its attempt (1-based)."""

    input: T_co
    id: str
    attempt: int


class BatchType(WorkType[P, R_co, G_co]):
    """A type whose works are queued one by one and run together.

    A batch runs once it has ``size`` works, or ``max_wait`` seconds after its first. Each work has exactly
    one input, of any kind.
    """

    def __init__(
        self, handler: Callable[..., Any], name: str, settings: WorkSettings, size: int, max_wait: float
    ) -> None:
        require_one_parameter(handler)
        super().__init__(handler, name, settings)
        self.size = size
        self.max_wait = max_wait
        self.signature = SIGNATURE

    def computed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what the type's ``options=`` makes of an input, which it is given as it is."""
        compute = self.settings.options
        return compute(arguments[INPUT]) if compute else None

    def build(self, arguments: Any) -> WorkRequest[R_co, G_co]:
        """Build a request from the one input."""
        return self.request(bind(self.signature, self.name, (arguments,), {}))


def require_one_parameter(handler: Callable[..., Any]) -> None:
    """Raise unless a handler takes the list of items, and nothing else."""
    parameters = list(inspect.signature(handler).parameters.values())
    if any(map(is_context, parameters)):
        raise ImproperWork(
            f"the handler {handler.__qualname__}() of a batch takes no context, for its items are works of "
            "their own; item.id and item.attempt say which."
        )
    if [parameter.kind for parameter in parameters] != [Parameter.POSITIONAL_OR_KEYWORD]:
        raise ImproperWork(
            f"expected the handler {handler.__qualname__}() of a batch to have one parameter, the list of "
            f"its items, got: {inspect.signature(handler)}."
        )


# --- skipping ---
# What a type that skips the queue cannot be.


def require_queue_if_continuous(name: str, settings: WorkSettings) -> None:
    """Raise when a type skips the queue whose works the engine queues by itself: workers do that anyway."""
    if settings.interval is not None and settings.skip_queue:
        raise ImproperWork(
            f"expected interval= or skip_queue=True, got both for {name!r}: works of a continuous type are "
            "queued by workers, which start them at once; leave skip_queue out."
        )
