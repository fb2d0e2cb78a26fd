"""How a handler can be called: its inputs are named, and the context comes first if it wants one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

from django_ayework.define.context import Context
from django_ayework.errors import ImproperWork

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
