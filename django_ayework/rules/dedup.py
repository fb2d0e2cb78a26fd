"""Deduplication by key: when an enqueue gives a work that is there instead of a new one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, get_args

from django_ayework.errors import InvalidOption, did_you_mean
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.ids import require_work_id

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
