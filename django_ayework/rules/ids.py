"""Ids of works: sortable by birth when we make them, any short word when the user does."""

from __future__ import annotations

import re
from uuid import UUID

from django_ayework.errors import InvalidWorkId

MAX_LENGTH = 64
WORK_ID = re.compile(r"[^\s\x00-\x1f\x7f]{1,64}")


def uuid7(milliseconds: int, entropy: int) -> str:
    """Return a UUID version 7 (RFC 9562 §5.7): 48 bits of Unix milliseconds, then 74 bits of entropy.

    >>> uuid7(0x017F22E279B0, 0xCC3 << 62 | 0x18C4DC0C0C07398F)
    '017f22e2-79b0-7cc3-98c4-dc0c0c07398f'
    """
    high = entropy >> 62 & 0xFFF
    low = entropy & 0x3FFF_FFFF_FFFF_FFFF
    return str(UUID(int=(milliseconds & 0xFFFF_FFFF_FFFF) << 80 | 7 << 76 | high << 64 | 2 << 62 | low))


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
