"""Types of work and their registry: handlers, names, settings, and how calls are bound to inputs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from django_ayework.compat import calling_frame
from django_ayework.define.context import Context
from django_ayework.define.handles import C_co, G_co, Handle, P, R_co
from django_ayework.define.options import ENQUEUE_OPTIONS, QueueOptions, WorkSettings, checked
from django_ayework.define.requests import WorkRequest, providers, watch
from django_ayework.documentation import type_error
from django_ayework.errors import ImproperWork, UnknownWorkType, by_other_name, did_you_mean, no_attribute
from django_ayework.rules.formatting import listed
from django_ayework.rules.signatures import call_text, path_of, signature_of, signature_text

T_co = TypeVar("T_co", covariant=True)

#: The settings that are defaults of queueing options.
CONSTANTS = ("queue", "priority", "fairness", "retry", "timeout", "expires", "lease")

REFUSED_KINDS = {
    Parameter.POSITIONAL_ONLY: "a positional-only parameter",
    Parameter.VAR_POSITIONAL: "a *args parameter",
}
#: Names that the context has in other packages.
MEANT_AS_CONTEXT = frozenset({"context", "self"})
POSITIONAL_KINDS = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def wants_context(handler: Callable[..., Any]) -> bool:
    """Tell whether the first parameter is named ``ctx`` or annotated ``Context``, be it as a string.

    >>> def add(ctx, a): ...
    >>> wants_context(add)
    True
    """
    first = next(iter(signature_of(handler).parameters.values()), None)
    return first is not None and first.kind in POSITIONAL_KINDS and is_context(first)


def is_context(parameter: Parameter) -> bool:
    """Tell whether a parameter asks for the context, by its name or its annotation.

    The annotation is the Context class or its name. The class of another package does not count.
    """
    annotation = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)
    if isinstance(annotation, str):
        is_annotated = annotation.strip("'\"").rpartition(".")[2] == "Context"
    else:
        is_annotated = isinstance(annotation, type) and issubclass(annotation, Context)
    return parameter.name == "ctx" or is_annotated


def input_signature(handler: Callable[..., Any]) -> Signature:
    """Return the signature of the handler's inputs, without the context.

    Raises ImproperWork for parameters that cannot be given by name.
    """
    signature = signature_of(handler)
    parameters = list(signature.parameters.values())[1 if wants_context(handler) else 0 :]
    for parameter in parameters:
        if parameter.kind in REFUSED_KINDS:
            raise ImproperWork(
                f"expected the inputs of {handler.__qualname__}() to be named parameters, "
                f"got {REFUSED_KINDS[parameter.kind]} ({parameter.name!r}); inputs are stored by name.",
                code="handler-parameters",
            )
        if is_context(parameter):
            raise ImproperWork(
                f"expected the context to be the first parameter of {handler.__qualname__}(), "
                f"got it as {str(parameter)!r} elsewhere.",
                code="handler-parameters",
            )
    return signature.replace(parameters=parameters)


def required_inputs(signature: Signature) -> list[str]:
    """Return the parameters without a default.

    >>> required_inputs(inspect.signature(lambda a, b=1, **more: None))
    ['a']
    """
    variable = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    required = (p for p in signature.parameters.values() if p.default is Parameter.empty)
    return [parameter.name for parameter in required if parameter.kind not in variable]


def bind(signature: Signature, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by name; raise TypeError at once when they do not fit.

    Defaults stay out: the handler's own apply when it runs. Only arguments that are not given by name are
    bound by Python itself, which takes ten times as long.
    """
    named = None if args else named_arguments(signature, kwargs)
    if named is not None:
        return named
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as misfit:
        expected, got = f"{name}{signature_text(signature)}", f"{name}{call_text(args, kwargs)}"
        raise type_error(
            "arguments-do-not-fit",
            f"{name}: {misfit}; expected {expected}, got {got}{hint_on_call(signature, kwargs)}",
        ) from None
    arguments = dict(bound.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            arguments.update(arguments.pop(parameter.name, {}))
    return arguments


def hint_on_call(signature: Signature, kwargs: Mapping[str, Any]) -> str:
    """Return what to write instead of an option, of the context, or of a parameter that is meant to be it."""
    for name in kwargs:
        if name in ENQUEUE_OPTIONS and name not in signature.parameters:
            return f". Did you mean enqueue(…, {name}=…)?"
    if "ctx" in kwargs and "ctx" not in signature.parameters:
        return ". Leave ctx out: the worker passes the context"
    for name in MEANT_AS_CONTEXT.intersection(signature.parameters):
        annotation = signature.parameters[name].annotation
        if annotation is Parameter.empty or "Context" in str(annotation):
            return f". If {name!r} is the context, put it first, and call it ctx or annotate it with Context"
    return ""


def named_arguments(signature: Signature, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments given by name, in the order of the signature; None unless they are its parameters."""
    arguments: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if name in kwargs:
            arguments[name] = kwargs[name]
        elif parameter.default is Parameter.empty:
            return None
    return arguments if len(arguments) == len(kwargs) else None


class WorkType(Generic[P, R_co, G_co, C_co]):
    """A type of work: call it to build a request, or use ``.enqueue(...)`` to build and queue one.

    ``handler`` is the plain function, ``name`` the type name.
    """

    def __init__(self, handler: Callable[..., Any], name: str, settings: WorkSettings) -> None:
        functools.update_wrapper(self, handler)
        self.handler = handler
        self.name = name
        self.settings = settings
        given = {name: getattr(settings, name) for name in CONSTANTS}
        #: The type's defaults: the options of the level below a request's own.
        self.constants = cast(QueueOptions, {name: each for name, each in given.items() if each is not None})
        self.takes_context = wants_context(handler)
        self.is_async = inspect.iscoroutinefunction(handler)
        self.signature = input_signature(handler)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> WorkRequest[R_co, G_co, C_co]:
        """Build a request; nothing is queued yet. Raises TypeError when the arguments do not fit."""
        request = self.request(bind(self.signature, self.name, args, kwargs))
        if watch.on:
            watch.note(request, calling_frame(1))
        return request

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co, G_co, C_co]:
        """Build a request and queue it in the current transaction; return its handle."""
        handle: Handle[R_co, G_co, C_co] = providers.enqueue(self(*args, **kwargs))
        return handle

    def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Handle[R_co, G_co, C_co]]:
        """See enqueue()."""
        return providers.aenqueue(self(*args, **kwargs))

    def request(self, arguments: Mapping[str, Any]) -> WorkRequest[R_co, G_co, C_co]:
        """Build a request from arguments by name, which must have been checked."""
        options = checked(self.computed(arguments) or {}) if self.settings.options else QueueOptions()
        return WorkRequest(type=self.name, input=arguments, options=options)

    def build(self, arguments: Mapping[str, Any]) -> WorkRequest[R_co, G_co, C_co]:
        """Build a request from arguments by name. Raises TypeError when they do not fit."""
        return self.request(self.arguments(arguments))

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments by name, checked. Raises TypeError when they do not fit."""
        return bind(self.signature, self.name, (), given)

    def differences(self, given: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Return the required inputs that are not given, and what is given that is no input.

        Both are empty exactly when ``arguments()`` takes what is given.
        """
        missing = [name for name in required_inputs(self.signature) if name not in given]
        if any(each.kind is Parameter.VAR_KEYWORD for each in self.signature.parameters.values()):
            return missing, []
        return missing, [name for name in given if name not in self.signature.parameters]

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters by which callers give the input."""
        return self.signature.parameters

    def by_parameter(self, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a stored input by these parameters."""
        return stored

    def computed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what the type's ``options=`` computes from an input, defaults included."""
        defaults = {
            parameter.name: parameter.default
            for parameter in self.signature.parameters.values()
            if parameter.default is not Parameter.empty
        }
        return self.settings.options(**{**defaults, **arguments}) if self.settings.options else None

    @property
    def origin(self) -> str:
        """The module and the name of the handler, and its line: a module may define two of one name."""
        code = getattr(inspect.unwrap(self.handler), "__code__", None)
        return f"{path_of(self.handler)} (line {code.co_firstlineno})" if code else path_of(self.handler)

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
            f"{name}.enqueue(…)": ("delay", "delay_on_commit", "defer", "send", "submit"),
            f"{name}.aenqueue(…)": ("adelay", "defer_async"),
            f"enqueue({name}(…), delay=…)": (
                *("apply_async", "apply_async_on_commit", "send_with_options", "schedule"),
                *("configure", "using"),
            ),
            f"{name}.handler(…)": ("apply", "call_local", "func", "fn", "run"),
            f"{name}(…)": ("s", "si", "signature", "message"),
            "enqueue_many([…])": ("map", "starmap", "chunks"),
            "get_handle(id)": ("AsyncResult",),
            "raise Reschedule(delay=…)": ("retry",),
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


class BatchType(WorkType[P, R_co, G_co, C_co]):
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

    def build(self, arguments: Any) -> WorkRequest[R_co, G_co, C_co]:
        """Build a request from the one input."""
        return self.request(bind(self.signature, self.name, (arguments,), {}))


def require_one_parameter(handler: Callable[..., Any]) -> None:
    """Raise unless a handler takes the list of items, and nothing else."""
    parameters = list(signature_of(handler).parameters.values())
    if any(map(is_context, parameters)):
        raise ImproperWork(
            f"the handler {handler.__qualname__}() of a batch takes no context, for its items are works of "
            "their own; item.id and item.attempt say which.",
            code="batch-handler-parameters",
        )
    if [parameter.kind for parameter in parameters] != [Parameter.POSITIONAL_OR_KEYWORD]:
        raise ImproperWork(
            f"expected the handler {handler.__qualname__}() of a batch to have one parameter, the list of "
            f"its items, got: {signature_of(handler)}.",
            code="batch-handler-parameters",
        )


AnyWorkType: TypeAlias = WorkType[..., Any, Any]
AnyBatchType: TypeAlias = BatchType[..., Any, Any]

#: How many modules a message names at most.
MOST_MODULES = 20


class HasName(Protocol):
    """A declared thing."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def origin(self) -> str:
        """The function that it stands for, and perhaps the place of the declaration."""
        ...


D = TypeVar("D", bound=HasName)


class Declared(Generic[D]):
    """Declared things by name. Two origins of one name are remembered, for the system check to report."""

    def __init__(self) -> None:
        self._declared: dict[str, D] = {}
        self.clashes: dict[str, tuple[str, str]] = {}
        #: Grows with every change.
        self.version = 0

    def register(self, declared: D) -> None:
        """Add one. A second declaration of a name replaces the first; of another origin it is a clash."""
        known = self.find(declared.name)
        if known is not None and known.origin != declared.origin:
            self.clashes[declared.name] = (known.origin, declared.origin)
        self._declared[declared.name] = declared
        self.version += 1

    def unregister(self, name: str) -> None:
        """Forget one; an unknown name is ignored."""
        self._declared.pop(name, None)
        self.clashes.pop(name, None)
        self.version += 1

    def find(self, name: str) -> D | None:
        """Return the declaration of this name, or None."""
        return self._declared.get(name)

    def names(self) -> list[str]:
        """Return every name, sorted."""
        return sorted(self._declared)

    def __iter__(self) -> Iterator[D]:
        return iter(list(self._declared.values()))


class Registry(Declared[AnyWorkType]):
    """Types of work by name."""

    def __init__(self) -> None:
        super().__init__()
        self._targets: tuple[int, set[str | None]] = 0, set()
        #: Functions that import modules which define types; each is called once.
        self.sources: list[Callable[[], object]] = []
        #: Queues that sources name.
        self.queues: set[str] = set()
        #: The modules of sources that could not be imported, each with its error as text.
        self.failed: dict[str, str] = {}

    def load(self) -> None:
        """Let the sources that were not called yet import the types that they know of."""
        while self.sources:
            self.sources.pop(0)()

    def names(self) -> list[str]:
        """Return every name, sorted; those of the sources, too."""
        self.load()
        return super().names()

    def batch(self, name: str) -> AnyBatchType | None:
        """Return the type of this name if its works run in batches, else None."""
        found = self.find(name)
        return found if isinstance(found, BatchType) else None

    def find_anywhere(self, name: str) -> AnyWorkType | None:
        """Return the type of this name, also of a source, or None."""
        if (found := self.find(name)) is None:
            self.load()
            found = self.find(name)
        return found

    def get(self, name: str) -> AnyWorkType:
        """Return the type of this name, also of a source; raise UnknownWorkType suggesting the nearest."""
        if (found := self.find_anywhere(name)) is None:
            raise UnknownWorkType(
                f"no work is named {name!r}.{did_you_mean(str(name), self._declared)} "
                "A work is known once its app is in INSTALLED_APPS and its works.py defines it, or imports "
                f"the module that does. {self.loaded()}"
            )
        return found

    def order_of(self, name: str) -> Literal["time", "unit"]:
        """Return the order in which works of a type are claimed when their priority is the same.

        The default is "unit" for types named by another's ``then=``, and "time" for others.
        """
        found = self.find(name)
        if found is not None and found.settings.order is not None:
            return found.settings.order
        if self._targets[0] != self.version:
            self._targets = self.version, {known.settings.then for known in self}
        return "unit" if name in self._targets[1] else "time"

    def loaded(self) -> str:
        """Return the modules that define the registered types, as a sentence."""
        modules = sorted({work_type.handler.__module__ for work_type in self})
        if not modules:
            return "No module that defines works is loaded here."
        return f"Works are loaded here from {listed(modules[:MOST_MODULES], len(modules))}."


def default_name(handler: Callable[..., Any], decorator: str) -> str:
    """Return ``"<app_label>.<function name>"``; raise when the function is in no installed app."""
    label = providers.app_label_of(handler.__module__)
    if label is None:
        is_loaded = hasattr(providers, "enqueue")
        hint = "" if is_loaded else " (django_ayework itself is not loaded: is it in INSTALLED_APPS?)"
        raise ImproperWork(
            f"{path_of(handler)} is in no installed app, so it has no name; "
            f'give one: {decorator}(name="...").{hint}',
            code="work-without-name",
        )
    return f"{label}.{handler.__name__}"


registry = Registry()
