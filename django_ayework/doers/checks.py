"""What doers can be built with."""

from __future__ import annotations

from django_ayework.rules.backoff import is_whole


def whole(value: int, name: str, *, least: int) -> int:
    """Return a whole number that is not too small.

    >>> whole(0, "max", least=1)
    Traceback (most recent call last):
    ...
    ValueError: expected max to be a whole number, 1 or more, got: 0.
    """
    if not is_whole(value) or value < least:
        raise ValueError(f"expected {name} to be a whole number, {least} or more, got: {value!r}.")
    return value
