"""What enqueue() was given, as a request: a built work, or the name of a type and its input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_ayework.define.options import ENQUEUE_OPTIONS
from django_ayework.define.registry import registry
from django_ayework.define.requests import WorkRequest, require_requests
from django_ayework.define.work_type import WorkType
from django_ayework.flow.redaction import arguments_for_people


def request_of(work: WorkRequest[Any, Any] | str, input: Any) -> WorkRequest[Any, Any]:
    """Return a built request; a type name with its input is built now.

    Raises UnknownWorkType, suggesting the nearest name, and TypeError when the input does not fit.
    """
    if isinstance(work, WorkRequest) and input is None:
        return work
    if isinstance(work, str):
        build = registry.get(work).build
        return build(one_input(work, input) if registry.batch(work) else named_input(work, input))
    if isinstance(work, WorkType) and input is not None:
        raise TypeError(
            f"expected enqueue(work) to have a built work, got the type {work!r} and its input; "
            f"call the type: enqueue({work.handler.__name__}(…)), or give its name: "
            f"enqueue({work.name!r}, {{…}})."
        )
    if input is not None:
        shown = arguments_for_people(registry.find(getattr(work, "type", "")), input)
        raise TypeError(
            f"expected the input only with a type name, got {shown!r} with the built work {work!r}."
        )
    return next(iter(require_requests([work], "enqueue(work)")))


def refuse_arguments(name: str, options: Mapping[str, Any]) -> None:
    """Raise TypeError when inputs of a type came among the options, as in a call of the type."""
    inputs = registry.get(name).signature.parameters
    misplaced = [key for key in options if key in inputs and key not in ENQUEUE_OPTIONS]
    if misplaced:
        raise TypeError(
            f"expected the input of {name!r} as a mapping, such as "
            f"enqueue({name!r}, {{{misplaced[0]!r}: …}}), got {', '.join(misplaced)} among the options."
        )


def one_input(name: str, input: Any) -> Any:
    """Return the input given with the name of a batch type, of whatever kind."""
    if input is None:
        raise TypeError(
            f"expected enqueue({name!r}, input) to have the one input of a batch's work, got none."
        )
    return input


def named_input(name: str, input: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the input given with a name."""
    if input is not None and not isinstance(input, Mapping):
        raise TypeError(
            f"expected the input of {name!r} as a mapping of names to values, "
            f"got: {arguments_for_people(registry.find(name), input)!r}."
        )
    return input or {}
