"""Functions: where they are, their signatures, and whether a call fits them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any


def path_of(function: Callable[..., Any]) -> str:
    """Return the module and the name of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def signature_of(function: Callable[..., Any], follow_wrapped: bool = True) -> inspect.Signature:
    """Return the signature of a function; annotations that name what only type checkers import stay names."""
    if sys.version_info >= (3, 14):  # which evaluates annotations when they are read
        from annotationlib import Format

        return inspect.signature(function, follow_wrapped=follow_wrapped, annotation_format=Format.FORWARDREF)
    return inspect.signature(function, follow_wrapped=follow_wrapped)


def misfit(function: Callable[..., Any], arguments: int) -> str:
    """Return the parameters of a function that does not take so many arguments by position, or an empty text.

    A function whose signature cannot be inspected may take them.

    >>> misfit(lambda exception, info: None, 2), misfit(lambda error, *, info: None, 2)
    ('', '(error, *, info)')
    """
    try:
        signature = signature_of(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*range(arguments))
    except TypeError:
        return str(signature)
    return ""


def call_text(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return which arguments a call has, without their values, which may be long or secret.

    >>> call_text((1,), {"b": 2})
    '(…, b=…)'
    """
    return f"({', '.join([*('…' for _ in args), *(f'{name}=…' for name in kwargs)])})"


def signature_text(signature: inspect.Signature) -> str:
    """Return the inputs as they are written in a call, without annotations."""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
