"""A type of work whose works are run many at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Generic, ParamSpec, TypeVar

from django_ayework.define.requests import WorkRequest
from django_ayework.define.signature import bind, is_context
from django_ayework.define.work_type import WorkSettings, WorkType
from django_ayework.errors import ImproperWork

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)

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
