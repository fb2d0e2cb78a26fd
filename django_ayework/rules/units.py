"""Units: names of what works of one type are about; there is one live work per unit."""

from __future__ import annotations

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
