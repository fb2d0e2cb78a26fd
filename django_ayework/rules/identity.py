"""How works are identified: ids, units, and deduplication keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

from django_ayework.errors import InvalidOption, InvalidWorkId, did_you_mean
from django_ayework.rules.durations import Seconds, seconds

MAX_LENGTH = 64
WORK_ID = re.compile(r"[^\s\x00-\x1f\x7f]{1,64}")


def uuid7(milliseconds: int, entropy: int) -> str:
    """Return a UUID version 7 (RFC 9562 §5.7): 48 bits of Unix milliseconds, then 74 bits of entropy.

    >>> uuid7(0x017F22E279B0, 0xCC3 << 62 | 0x18C4DC0C0C07398F)
    '017f22e2-79b0-7cc3-98c4-dc0c0c07398f'
    """
    # Put together as text: a UUID object would cost as much again, for every work.
    return "%08x-%04x-7%03x-%04x-%012x" % (  # noqa: UP031  # format() takes half as long again
        milliseconds >> 16 & 0xFFFF_FFFF,
        milliseconds & 0xFFFF,
        entropy >> 62 & 0xFFF,
        0x8000 | entropy >> 48 & 0x3FFF,
        entropy & 0xFFFF_FFFF_FFFF,
    )


def require_work_id(value: object) -> str:
    """Return a usable id, else raise :class:`~django_ayework.errors.InvalidWorkId`.

    >>> require_work_id("order-17")
    'order-17'
    """
    if isinstance(value, str) and WORK_ID.fullmatch(value) and value.isprintable():
        return value
    raise InvalidWorkId(
        f"expected a work id to be 1 to {MAX_LENGTH} printable characters without spaces, got: {value!r}.",
        id=value if isinstance(value, str) else None,
    )


MAX_UNIT_LENGTH = 190


def require_unit(value: object) -> str:
    """Return a unit's name: 1 to 190 characters that every database can hold and tell apart.

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


@dataclass(frozen=True, slots=True)
class Dedup:
    """Give the work of this type and key that is there, instead of queueing another.

    ``scope="incomplete"`` looks at works whose chain has not ended, ``"any"`` at ended ones too. ``window``
    (seconds or timedelta) looks only at those queued within it. ``exclude`` are ids or handles to pass over.

    >>> Dedup("nightly", window=60).window
    60.0
    >>> Dedup("nightly", scope="all")
    Traceback (most recent call last):
    ...
    django_ayework.errors.InvalidOption: expected Dedup's scope to be 'incomplete' or 'any', got: 'all'.
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
                f"{did_you_mean(str(self.scope), SCOPES)}"
            )
        if self.window is not None:
            object.__setattr__(self, "window", require_window(self.window))
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
            f"spaces around it, got: {key!r}."
        )


def require_window(window: Seconds) -> float:
    """Return a window in seconds, which must be more than 0: otherwise nothing could ever match."""
    length = seconds(window, "Dedup's window")
    if length == 0:
        raise InvalidOption(f"expected Dedup's window to be more than 0 seconds, got: {window!r}.")
    return length


def excluded_ids(exclude: Any) -> Iterable[str]:
    """Return the ids; a single id or handle will do."""
    if isinstance(exclude, str) or not isinstance(exclude, Iterable):
        exclude = (exclude,)
    for item in exclude:
        yield require_work_id(getattr(item, "id", item))
