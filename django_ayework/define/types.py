"""A type of work: its handler, its name, its settings, and how a call of it is bound to its inputs."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from django_ayework.define.context import Context
from django_ayework.define.handles import Handle
from django_ayework.define.options import QueueOptions, WorkSettings, checked
from django_ayework.define.requests import WorkRequest, providers, watch
from django_ayework.errors import ImproperWork, by_other_name, no_attribute

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)

#: The settings that are defaults of queueing options.
CONSTANTS = ("queue", "priority", "fairness", "retry", "timeout", "expires", "lease")

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

    Defaults stay out: the handler's own apply when it runs. Only what is not given by name is bound by
    Python itself, which takes ten times as long.
    """
    named = None if args else named_arguments(signature, kwargs)
    if named is not None:
        return named
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


def named_arguments(signature: Signature, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments given by name, in the order of the signature; None unless they are its parameters."""
    arguments: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if name in kwargs:
            arguments[name] = kwargs[name]
        elif parameter.default is Parameter.empty:
            return None
    return arguments if len(arguments) == len(kwargs) else None


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


class WorkType(Generic[P, R_co, G_co]):
    """A type of work: call it to build a request, or use ``.enqueue(...)`` to build and queue one.

    ``handler`` is the plain function, ``name`` the type name.
    """

    def __init__(self, handler: Callable[..., Any], name: str, settings: WorkSettings) -> None:
        functools.update_wrapper(self, handler)
        self.handler = handler
        self.name = name
        self.settings = settings
        given = {name: getattr(settings, name) for name in CONSTANTS}
        self._constants = cast(QueueOptions, {name: each for name, each in given.items() if each is not None})
        self.takes_context = wants_context(handler)
        self.is_async = inspect.iscoroutinefunction(handler)
        self.signature = input_signature(handler)
        #: Whether an attempt is a call of a plain function with its arguments, and nothing around it.
        around = (
            settings.atomic,
            settings.interrupt,
            settings.middleware,
            settings.log_context,
            settings.then,
        )
        self.is_shown_nothing = not (self.takes_context or self.is_async or any(around))

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> WorkRequest[R_co, G_co]:
        """Build a request; nothing is queued yet. Raises TypeError when the arguments do not fit."""
        request = self.request(bind(self.signature, self.name, args, kwargs))
        if watch.on:
            watch.note(request, sys._getframe(1))
        return request

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co, G_co]:
        """Build a request and queue it in the current transaction; return its handle."""
        handle: Handle[R_co, G_co] = providers.enqueue(self(*args, **kwargs))
        return handle

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co, G_co]:
        """See enqueue()."""
        handle: Handle[R_co, G_co] = await providers.aenqueue(self(*args, **kwargs))
        return handle

    def request(self, arguments: Mapping[str, Any]) -> WorkRequest[R_co, G_co]:
        """Build a request from arguments by name, which must have been checked."""
        options = checked(self.computed(arguments) or {}) if self.settings.options else QueueOptions()
        return WorkRequest(type=self.name, input=arguments, options=options)

    def build(self, arguments: Mapping[str, Any]) -> WorkRequest[R_co, G_co]:
        """Build a request from arguments by name. Raises TypeError when they do not fit."""
        return self.request(self.arguments(arguments))

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name, checked. Raises TypeError when they do not fit."""
        return bind(self.signature, self.name, (), given)

    def computed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what the type's ``options=`` computes from an input, defaults included."""
        defaults = {
            parameter.name: parameter.default
            for parameter in self.signature.parameters.values()
            if parameter.default is not Parameter.empty
        }
        return self.settings.options(**{**defaults, **arguments}) if self.settings.options else None

    def constants(self) -> QueueOptions:
        """Return the type's defaults, as options of the level below a request's own; not to be changed."""
        return self._constants

    def __repr__(self) -> str:
        return f"<WorkType {self.name}>"

    if not TYPE_CHECKING:  # type checkers refuse unknown attributes themselves

        def __getattr__(self, name):
            """Raise AttributeError, suggesting the nearest attribute."""
            attributes = ("enqueue", "aenqueue", "handler", "name", "settings")
            raise no_attribute(repr(type(self).__name__), name, attributes, meanings_for(self))


def meanings_for(work_type: WorkType[..., Any, Any]) -> Mapping[str, str]:
    """Return what to write instead of methods that types of work have in other packages."""
    name = work_type.__dict__.get("__name__", "work")
    return by_other_name(
        {
            f"{name}.enqueue(…)": ("delay", "defer", "send", "submit"),
            f"{name}.aenqueue(…)": ("adelay", "defer_async"),
            f"enqueue({name}(…), delay=…)": (
                *("apply_async", "send_with_options", "schedule", "configure", "using"),
            ),
            f"{name}.handler(…)": ("apply", "call_local", "func", "fn", "run"),
            f"{name}(…)": ("s", "si", "signature", "message"),
        }
    )


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
        """Return what the type's ``options=`` computes from the one input."""
        return self.settings.options(arguments[INPUT]) if self.settings.options else None

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
