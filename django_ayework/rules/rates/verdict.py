"""What a hit on a limit is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Allowed:
    """The hit is within the limit, and was counted. It is true, and ``Denied`` is false.

    >>> bool(Allowed()), bool(Denied(0.5))
    (True, False)
    """

    def __bool__(self) -> Literal[True]:
        return True


@dataclass(frozen=True, slots=True)
class Denied:
    """The hit is beyond the limit, and was not counted; one in exactly ``retry_after`` seconds is allowed."""

    retry_after: float

    def __bool__(self) -> Literal[False]:
        return False


Verdict: TypeAlias = Allowed | Denied
