"""Which units of the next type a work's output asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from django_ayework.rules.identity import require_unit

#: What ``ctx.output`` takes.
Output: TypeAlias = Mapping[str, Any] | list[Any] | tuple[Any, ...]

MAX_PRIORITY = 2**31 - 1
LONGEST_DELAY = timedelta.max.total_seconds()


@dataclass(frozen=True, slots=True)
class Unit:
    """One work of the next type. ``priority`` is None for that of its type; ``delay`` is in seconds."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    priority: int | None = None
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Units:
    """What an output asks for, and why the rest of it was dropped."""

    units: tuple[Unit, ...] = ()
    dropped: tuple[str, ...] = ()


def units_of(output: object) -> Units:
    """Read an output; of a unit named twice the later one counts.

    >>> [(unit.name, unit.input) for unit in units_of({"b": {"size": 2}, "a": None}).units]
    [('b', {'size': 2}), ('a', {})]
    >>> [unit.priority for unit in units_of(["a", ["b", {}, {"priority": 1}, 20.0]]).units]
    [None, 20]
    >>> units_of("a").dropped
    ("expected an output to be a mapping or a list, got: 'a'",)
    """
    if isinstance(output, Mapping):
        return units_of_mapping(output)
    if not isinstance(output, (list, tuple)):
        return Units(dropped=(f"expected an output to be a mapping or a list, got: {output!r:.80}",))
    units: dict[str, Unit] = {}
    dropped = []
    for element in output:
        try:
            unit = unit_of(element)
        except ValueError as error:
            dropped.append(str(error))
        else:
            units[unit.name] = unit
    return Units(tuple(units.values()), tuple(dropped))


def units_of_mapping(output: Mapping[Any, Any]) -> Units:
    """Read a mapping of unit to input; one bad entry spoils it, for then it means something else."""
    try:
        return Units(tuple(Unit(read_name(name), read_input(input)) for name, input in output.items()))
    except ValueError as error:
        return Units(dropped=(f"the whole mapping: {error}",))


def unit_of(element: object) -> Unit:
    """Read one element of a list. Raises ValueError saying what is wrong with it."""
    if isinstance(element, (str, bytes)):
        return Unit(read_name(element))
    if not isinstance(element, (list, tuple)) or len(element) < 2:
        raise ValueError(f"expected a unit's name or [name, input, metadata, priority], got: {element!r:.80}")
    name, input, metadata, priority = (*element, None, None)[:4]
    told = read_mapping(metadata, "metadata")
    return Unit(
        read_name(name),
        read_input(input),
        read_priority(told.get("priority") if priority is None else priority, told),
        read_delay(told.get("delay")),
    )


def read_name(name: object) -> str:
    """Return a unit's name; bytes are UTF-8."""
    if isinstance(name, bytes):
        try:
            name = name.decode()
        except UnicodeDecodeError:
            raise ValueError(f"expected a unit's name in UTF-8, got: {name!r:.80}") from None
    return require_unit(name)


def read_input(input: object) -> Mapping[str, Any]:
    """Return a unit's input; None is no input."""
    return read_mapping(input, "input")


def read_mapping(value: object, what: str) -> Mapping[str, Any]:
    """Return a mapping with texts as keys; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"expected a unit's {what} to be a mapping of names to values, got: {value!r:.80}")
    return value


def read_priority(value: object, metadata: Mapping[str, Any]) -> int | None:
    """Return a priority as the nearest whole number that can be stored; None for that of the type.

    The metadata's own must be a number even where the fourth element overrules it.
    """
    overruled = metadata.get("priority")
    numbers = [read_number(number, "priority") for number in (overruled, value) if number is not None]
    return max(-MAX_PRIORITY, min(MAX_PRIORITY, round(numbers[-1]))) if numbers else None


def read_delay(value: object) -> float:
    """Return a delay in seconds; none is 0, and so is what lies in the past."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return 0.0 if value is None else float(max(0, min(LONGEST_DELAY, read_number(value, "delay"))))


def read_number(value: object, what: str) -> int | float:
    """Return a finite number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"expected a unit's {what} to be a number, got: {value!r:.80}")
