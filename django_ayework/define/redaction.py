"""Saying which inputs people are not shown."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, Signature

from django_ayework.errors import ImproperWork, InvalidOption, did_you_mean


def check_redact(value: object, name: str) -> tuple[str, ...]:
    """Return dotted paths into the input, given as a list of texts."""
    if not isinstance(value, (list, tuple)):
        raise InvalidOption(f"expected {name} to be a list of names such as 'card.number', got: {value!r}.")
    for path in value:
        if not isinstance(path, str) or not all(path.split(".")):
            raise InvalidOption(f"expected {name} to have names such as 'card.number', got: {path!r}.")
    return tuple(value)


def require_inputs(signature: Signature, name: str, paths: Sequence[str]) -> None:
    """Raise ImproperWork unless each path begins at an input: a slip of the pen would show what it hides."""
    parameters = signature.parameters.values()
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return
    for path in paths:
        if (first := path.partition(".")[0]) not in signature.parameters:
            raise ImproperWork(
                f"expected redact= of {name!r} to name its inputs ({', '.join(signature.parameters)}), "
                f"got: {path!r}.{did_you_mean(first, signature.parameters)}"
            )
