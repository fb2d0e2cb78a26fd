"""The annotations of handlers: inputs, results and contributions, as objects and as source text."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from inspect import Parameter
from typing import Annotated, Any, Literal, NamedTuple, Never, TypeVar, Union, get_args, get_origin

from django_ayework.define.instructions import Instruction
from django_ayework.define.types import AnyWorkType, BatchType
from django_ayework.rules.signatures import signature_of

#: The annotations of typing that are written by their names.
SPECIAL = {Any: "Any", Never: "Never", typing.NoReturn: "Never"}


def annotations_of(work_type: AnyWorkType) -> dict[str, Any]:
    """Return the annotations of the handler's inputs; those that cannot be resolved are left out."""
    found = {}
    for name, parameter in work_type.signature.parameters.items():
        if parameter.annotation is not Parameter.empty:
            with suppress(Exception):  # names that only type checkers import
                found[name] = resolved(work_type.handler, parameter.annotation)
    return found


def resolved(handler: Callable[..., Any], annotation: Any) -> Any:
    """Return an annotation with its names looked up where the handler is defined."""

    def bare() -> None: ...

    bare.__annotations__ = {"it": annotation}
    names = getattr(handler, "__globals__", {})
    return typing.get_type_hints(bare, globalns=names, include_extras=True)["it"]


def batch_input(work_type: AnyWorkType) -> Any:
    """Return the annotation of the one input of a batch type's works: ``T`` of ``list[BatchItem[T]]``."""
    [items] = signature_of(work_type.handler).parameters.values()
    with suppress(Exception):
        [item] = get_args(resolved(work_type.handler, items.annotation))
        [found] = get_args(item)
        return found
    return Any


class Results(NamedTuple):
    """The annotations of a work's result, of its contribution, and of its chain's result."""

    result: Any = Any
    contribution: Any = Any
    chain: Any = Any


def results_of(work_type: AnyWorkType) -> Results:
    """Return the annotations of a type's results, as ``@work`` infers them."""
    annotation = signature_of(work_type.handler).return_annotation
    if annotation is Parameter.empty:
        return Results()
    try:
        returned = resolved(work_type.handler, annotation)
    except Exception:  # names that only type checkers import
        return Results()
    if isinstance(work_type, BatchType):
        item, *_ = get_args(returned) or [Any]  # of the list
        return contributed([each for each in members(item) if not is_exception(each)])
    return contributed(members(returned))


def contributed(returned: Sequence[Any]) -> Results:
    """Return the results of a handler that returns one of these."""
    found = [parts for each in returned if (parts := instruction_parts(each)) is not None]
    if not found:
        result = united(returned)
        return Results(None, Never, None) if result is None else Results(result, result, result)
    others = [each for each in returned if instruction_parts(each) is None]
    return Results(
        united([each.result for each in found] + others),
        united([each.contribution for each in found]),
        united([each.chain for each in found] + others),
    )


def instruction_parts(annotation: Any) -> Results | None:
    """Return the results of an instruction's annotation; None for any other.

    >>> from django_ayework.define.instructions import Continue, Queue, Result, Void
    >>> instruction_parts(Result[int]) == (int, int, int), instruction_parts(Queue[str]) == (None, str, None)
    (True, True)
    >>> instruction_parts(Continue[str]) == (None, str, str), instruction_parts(int) is None
    (True, True)
    """
    origin = get_origin(annotation) or annotation
    if not (isinstance(origin, type) and issubclass(origin, Instruction)):
        return None
    names: Sequence[Any] = getattr(origin, "__parameters__", ())
    given = dict(zip(names, get_args(annotation) or [Any] * len(names), strict=True))
    parts = names if origin is Instruction else get_args(origin.__orig_bases__[0])  # type: ignore[attr-defined]
    # The default of a type variable may be another one.
    found = [given.get(given.get(part, part), given.get(part, part)) for part in parts]
    return Results(*map(without_none, found))


def without_none(annotation: Any) -> Any:
    """Return None for its class, which stands for it in annotations."""
    return None if annotation is type(None) else annotation


def members(annotation: Any) -> list[Any]:
    """Return the members of a union, or the one annotation.

    >>> members(int | None) == [int, None]
    True
    """
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return [without_none(each) for each in (get_args(annotation) if is_union else [annotation])]


def united(annotations: Sequence[Any]) -> Any:
    """Return the union of annotations; Never is none of its members."""
    distinct = [each for each in dict.fromkeys(annotations) if each is not Never]
    if not distinct:
        return Never
    return distinct[0] if len(distinct) == 1 else Union[tuple(distinct)]  # noqa: UP007  # of a number unknown


def is_exception(annotation: Any) -> bool:
    """Tell whether an annotation is a class of exceptions."""
    return isinstance(annotation, type) and issubclass(annotation, BaseException)


class Source:
    """Writes annotations as source text, and collects the modules that the text needs.

    A local class and a type variable have no name to import, so they are written ``Any``.
    """

    def __init__(self) -> None:
        self.modules: set[str] = set()

    def of(self, annotation: Any) -> str:
        """Return the source text of a resolved annotation.

        >>> from datetime import date
        >>> Source().of(dict[str, list[date] | None])
        'dict[str, list[datetime.date] | None]'
        >>> Source().of(Literal["a", 1])
        "Literal['a', 1]"
        """
        if annotation is None or annotation is type(None):
            return "None"
        if annotation is Ellipsis:
            return "..."
        for special, name in SPECIAL.items():
            if annotation is special:  # not every annotation can be hashed
                return name
        origin = get_origin(annotation)
        if origin is None:
            return self.name(annotation)
        return self.generic(origin, get_args(annotation))

    def generic(self, origin: Any, arguments: Sequence[Any]) -> str:
        """Return the source text of an annotation with arguments."""
        if origin is Annotated:
            return self.of(arguments[0])
        if origin in (Union, types.UnionType):
            return " | ".join(dict.fromkeys(map(self.of, arguments)))
        if origin is Literal:
            return f"Literal[{', '.join(map(self.literal, arguments))}]"
        name = self.name(origin)
        if name == "Any" or any(isinstance(each, list) for each in arguments):  # Callable[[int], str]
            return "Any"
        return f"{name}[{', '.join(map(self.of, arguments)) or '()'}]"

    def literal(self, value: Any) -> str:
        """Return the source text of a value in ``Literal``."""
        return f"{self.name(type(value))}.{value.name}" if isinstance(value, Enum) else repr(value)

    def name(self, annotation: Any) -> str:
        """Return the name of a class with its module, and note the module for import."""
        module = getattr(annotation, "__module__", None)
        name = getattr(annotation, "__qualname__", None) or getattr(annotation, "__name__", "")
        if isinstance(annotation, TypeVar) or not module or not name or "<" in name:
            return "Any"
        if module == "builtins":
            return str(name)
        self.modules.add(module)
        return f"{module}.{name}"
