"""Private parts of Python, Django and database drivers that the package uses: one function for each."""

from __future__ import annotations

import sys
from opcode import opmap
from types import FrameType
from typing import NamedTuple

# Discarded values, by the instructions of CPython 3.11, 3.12 and 3.13: POP_TOP discards the value of an
# expression statement, RETURN_VALUE ends a function. An instruction has two bytes, and so has each of its
# caches, which are zeros in ``co_code``. A frame is the same object while it runs.
POP_TOP, RETURN_VALUE = opmap["POP_TOP"], opmap["RETURN_VALUE"]
INSTRUCTION = 2


class Discard(NamedTuple):
    """The instruction of a running frame that discards what a call returns."""

    frame: int
    position: int


def discard_after_call(frame: FrameType) -> Discard | None:
    """Return where the result of the call at which ``frame`` is will be discarded, by it or by its caller.

    None if the next instruction uses the result, or if the interpreter is not CPython.
    """
    if sys.implementation.name != "cpython":
        return None
    instruction, position = next_instruction(frame)
    if instruction == RETURN_VALUE and frame.f_back is not None:
        frame = frame.f_back
        instruction, position = next_instruction(frame)
    return Discard(id(frame), position) if instruction == POP_TOP else None


def next_instruction(frame: FrameType) -> tuple[int, int]:
    """Return the instruction that follows the present one and its caches, and its position."""
    code = frame.f_code.co_code
    for position in range(frame.f_lasti + INSTRUCTION, len(code), INSTRUCTION):
        if code[position]:
            return code[position], position
    return 0, len(code)


def is_discarding(discard: Discard) -> bool:
    """Tell, in the ``__del__`` of an object, whether this instruction is what frees the object."""
    try:
        frame = sys._getframe(2)
    except ValueError:  # the process ends
        return False
    return discard == (id(frame), frame.f_lasti)
