"""A type of work: its handler, its name, its settings."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, cast

from django_ayework.define import seams
from django_ayework.define.dropped import note, watch
from django_ayework.define.handles import Handle
from django_ayework.define.middleware import Middleware
from django_ayework.define.options import QueueOptions, checked
from django_ayework.define.requests import WorkRequest
from django_ayework.define.signature import bind, input_signature, wants_context
from django_ayework.doers import Doer
from django_ayework.errors import no_attribute
from django_ayework.rules.backoff import Retry
from django_ayework.rules.codec import Codec
from django_ayework.rules.controls import DEFAULT_WEIGHT

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
        #: Whether an attempt is a call of a plain function with its arguments, and nothing around it.
        self.is_shown_nothing = not (self.takes_context or self.is_async or surrounds(settings))

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
        return seams.enqueue(self(*args, **kwargs))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co, G_co]:
        """See enqueue()."""
        return await seams.aenqueue(self(*args, **kwargs))

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


def surrounds(settings: WorkSettings) -> bool:
    """Tell whether a type wants anything to happen around the calls of its handler."""
    around = (settings.atomic, settings.interrupt, settings.middleware, settings.log_context, settings.then)
    return any(around)
