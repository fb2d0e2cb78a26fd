"""The type variables of works: their result, their contribution to the group, the result of their chain.

The result of a chain is that of its last work. For a work that does not hand over to another it is the work's
own, which is the default (PEP 696).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING or sys.version_info < (3, 13):
    from typing_extensions import TypeVar
else:
    from typing import TypeVar

__all__ = ["C", "C_co", "G", "G_co", "P", "R", "R_co", "T", "TypeVar"]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
G = TypeVar("G")
C = TypeVar("C")
R_co = TypeVar("R_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)
C_co = TypeVar("C_co", covariant=True, default=R_co)
