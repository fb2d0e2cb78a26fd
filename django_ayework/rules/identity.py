"""How works are identified: ids, units and deduplication keys; and the units that an output asks for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

from django_ayework.errors import InvalidOption, InvalidWorkId, did_you_mean
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.retry import is_whole

MAX_LENGTH = 64
WORK_ID = re.compile(r"[^\s\x00-\x1f\x7f]{1,64}")


def uuid7(tick: int, random: int) -> str:
    """Return a UUID version 7: a Unix time in 4096ths of a millisecond (60 bits), then 62 random bits.

    RFC 9562 §5.7; §6.2, method 3, has the fraction of the millisecond in the 12 bits after it.

    >>> uuid7(0x017F22E279B0CC3, 0x18C4DC0C0C07398F)
    '017f22e2-79b0-7cc3-98c4-dc0c0c07398f'
    """
    # Put together as text: a UUID object would cost as much again, for every work.
    time, rest = f"{tick:015x}", f"{1 << 63 | random:x}"  # the bit is the variant
    return f"{time[:8]}-{time[8:12]}-7{time[12:]}-{rest[:4]}-{rest[4:]}"


def require_work_id(value: object) -> str:
    """Return a usable id, else raise :class:`~django_ayework.errors.InvalidWorkId`.

    >>> require_work_id("order-17")
    'order-17'
    """
    if not isinstance(value, str):
        raise not_a_text(value)
    if WORK_ID.fullmatch(value) and value.isprintable():
        return value
    raise InvalidWorkId(
        f"expected a work id to be 1 to {MAX_LENGTH} printable characters without spaces, got: {value!r}.",
        id=value,
    )


def require_text(id: object) -> str:
    """Return the id that a call names a work by; raise InvalidWorkId unless it is a text.

    No work has an id that cannot be printed, and databases and their drivers refuse NUL and surrogates.

    >>> require_text("order-17")
    'order-17'
    """
    if isinstance(id, str):
        return id if id.isprintable() else require_work_id(id)
    raise not_a_text(id)


def not_a_text(id: object) -> InvalidWorkId:
    """Return the error about an id that is an object of another kind, such as a UUID."""
    return InvalidWorkId(
        f"expected the id of a work as a text, got: {id!r}. Pass .id of a handle, or str(…) of a UUID.",
        code="id-not-a-text",
    )


MAX_UNIT_LENGTH = 190


def require_unit(value: object) -> str:
    """Return a unit's name: 1 to 190 characters that every database can hold and distinguish.

    Spaces around it are refused because MariaDB ignores them. Raises ValueError.

    >>> require_unit("page/7")
    'page/7'
    """
    if not isinstance(value, str) or not 0 < len(value) <= MAX_UNIT_LENGTH:
        raise ValueError(
            f"expected a unit's name to be 1 to {MAX_UNIT_LENGTH} characters, got: {value!r:.80}"
        )
    if "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"expected a unit's name to be text that can be stored, got: {value!r:.80}")
    if value != value.strip():
        raise ValueError(f"expected a unit's name to have no spaces around it, got: {value!r:.80}")
    return value


Scope: TypeAlias = Literal["incomplete", "any"]

MAX_KEY_LENGTH = 190
SCOPES: tuple[str, ...] = get_args(Scope)


class Identified(Protocol):
    """Anything with an id, such as a handle."""

    @property
    def id(self) -> str:
        """The id of a work."""
        ...


class About(NamedTuple):
    """A saved model object, by the label of its model and its primary key."""

    label: str
    key: str


@dataclass(frozen=True, slots=True)
class Dedup:
    """A key by which ``enqueue()`` returns an existing work of the type, instead of queueing another.

    ``scope="incomplete"`` considers works whose chain has not ended, ``"any"`` also those whose chain has.
    With ``window`` (seconds or timedelta) only works count that were queued within it. ``exclude`` are ids or
    handles of works that do not count.

    >>> Dedup("nightly", window=60).window
    60.0
    >>> Dedup("nightly", scope="all")
    Traceback (most recent call last):
    ...
    django_ayework.errors.InvalidOption: expected Dedup's scope to be 'incomplete' or 'any', got: 'all'.
    See https://...
    """

    key: str
    scope: Scope = "incomplete"
    window: Seconds | None = None
    exclude: Iterable[str | Identified] = ()

    def __post_init__(self) -> None:
        require_key(self.key)
        if self.scope not in SCOPES:
            raise InvalidOption(
                f"expected Dedup's scope to be 'incomplete' or 'any', got: {self.scope!r}."
                f"{did_you_mean(str(self.scope), SCOPES)}",
                code="dedup-not-usable",
            )
        if self.window is not None:
            length = seconds(self.window, "Dedup's window")
            if length == 0:  # nothing could ever match
                raise InvalidOption(
                    f"expected Dedup's window to be more than 0 seconds, got: {self.window!r}.",
                    code="dedup-not-usable",
                )
            object.__setattr__(self, "window", length)
        object.__setattr__(self, "exclude", tuple(dict.fromkeys(excluded_ids(self.exclude))))


def require_key(key: object) -> None:
    """Raise unless a key fits its column; spaces around it are refused because MariaDB ignores them."""
    if (
        not isinstance(key, str)
        or not 0 < len(key) <= MAX_KEY_LENGTH
        or not key.isprintable()
        or key != key.strip()
    ):
        raise InvalidOption(
            f"expected Dedup's key to be a text of 1 to {MAX_KEY_LENGTH} printable characters without "
            f"spaces around it, got: {key!r}.",
            code="dedup-not-usable",
        )


def excluded_ids(exclude: Any) -> Iterable[str]:
    """Return the ids; a single id or handle will do."""
    if isinstance(exclude, str) or not isinstance(exclude, Iterable):
        exclude = (exclude,)
    for item in exclude:
        yield require_work_id(getattr(item, "id", item))


#: The argument of ``ctx.output``.
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
    """The works that an output requests, and the reason why other parts were dropped."""

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
        return Units(
            tuple(Unit(read_name(name), read_mapping(input, "input")) for name, input in output.items())
        )
    except ValueError as error:
        return Units(dropped=(f"the whole mapping: {error}",))


def unit_of(element: object) -> Unit:
    """Read one element of a list. Raises ValueError with the reason why it cannot be used."""
    if isinstance(element, (str, bytes)):
        return Unit(read_name(element))
    if not isinstance(element, (list, tuple)) or len(element) < 2:
        raise ValueError(f"expected a unit's name or [name, input, metadata, priority], got: {element!r:.80}")
    name, input, metadata, priority = (*element, None, None)[:4]
    given = read_mapping(metadata, "metadata")
    return Unit(
        read_name(name),
        read_mapping(input, "input"),
        read_priority(given.get("priority"), priority),
        read_delay(given.get("delay")),
    )


def read_name(name: object) -> str:
    """Return a unit's name; bytes are UTF-8."""
    if isinstance(name, bytes):
        try:
            name = name.decode()
        except UnicodeDecodeError:
            raise ValueError(f"expected a unit's name in UTF-8, got: {name!r:.80}") from None
    return require_unit(name)


def read_mapping(value: object, what: str) -> Mapping[str, Any]:
    """Return a mapping with texts as keys; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"expected a unit's {what} to be a mapping of names to values, got: {value!r:.80}")
    return value


def read_priority(*given: object) -> int | None:
    """Return the last priority given, as the nearest whole number that can be stored; None for none.

    That of the metadata must be a number even where the fourth element overrules it.
    """
    numbers = [read_number(number, "priority") for number in given if number is not None]
    return max(-MAX_PRIORITY, min(MAX_PRIORITY, round(numbers[-1]))) if numbers else None


def read_delay(value: object) -> float:
    """Return a delay in seconds; none is 0, and so is what lies in the past."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    return 0.0 if value is None else float(max(0, min(LONGEST_DELAY, read_number(value, "delay"))))


def read_number(value: object, what: str) -> int | float:
    """Return a finite number."""
    if is_whole(value):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(f"expected a unit's {what} to be a number, got: {value!r:.80}")
