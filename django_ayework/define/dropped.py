"""Requests that are built and dropped: they would silently do nothing.

The call that builds a request, or that returns it, may be an expression statement. Then the instruction
behind the call throws the request away, and Python frees it there. Only a request before such an
instruction is watched, so others cost little. One that is kept nevertheless is freed at another instruction.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from opcode import opmap
from types import FrameType
from typing import Any

from django_ayework.errors import NeverEnqueued

#: Throws away the value of an expression statement; ends a function.
POP_TOP, RETURN_VALUE = bytes([opmap["POP_TOP"]]), bytes([opmap["RETURN_VALUE"]])
#: Instructions and their caches have two bytes each, and a call has no more caches than these.
STEP, CACHES = 2, 16
#: Where a request keeps what tells of it.
ATTRIBUTE = "_unused"


class Watch:
    """Whether requests are watched in this process, and what was dropped by attempts that run here.

    Frames and their instructions are as CPython has them.
    """

    def __init__(self) -> None:
        self.on = False
        #: Returns the id of the work whose attempt runs here, or None.
        self.attempt: Callable[[], str | None] = lambda: None
        #: By id of such a work, what it dropped.
        self.dropped: dict[str, list[str]] = {}

    def start(self) -> None:
        """Watch the requests that are built from now on."""
        self.on = sys.implementation.name == "cpython"


watch = Watch()


def note(request: Any, frame: FrameType) -> None:
    """Watch a request that was built in this frame, if the frame or its caller is about to throw it away."""
    following, dropping = behind_call(frame), frame
    if following == RETURN_VALUE and frame.f_back is not None:
        dropping = frame.f_back
        following = behind_call(dropping)
    if following == POP_TOP:
        request.__dict__[ATTRIBUTE] = Unused(request.type, frame, dropping)


def behind_call(frame: FrameType) -> bytes:
    """Return the instruction behind the call at which a frame is; the caches in between are zeros."""
    begin = frame.f_lasti + STEP
    return frame.f_code.co_code[begin : begin + CACHES].lstrip(b"\0")[:1]


class Unused:
    """Tells of its request when a frame throws that away."""

    __slots__ = ("call", "code", "dropping", "instruction", "names", "type")

    def __init__(self, type: str, frame: FrameType, dropping: FrameType) -> None:
        self.type = type
        self.code, self.instruction, self.names = frame.f_code, frame.f_lasti, frame.f_globals
        self.dropping, self.call = id(dropping), dropping.f_lasti  # a frame is the same object while it runs

    def __del__(self) -> None:
        try:
            frame = sys._getframe(1)
        except ValueError:  # the process ends
            return
        code, now = frame.f_code.co_code, frame.f_lasti
        is_thrown_away = id(frame) == self.dropping and code[now : now + 1] == POP_TOP and now > self.call
        if is_thrown_away and not any(code[self.call + STEP : now]):
            self.tell()

    def __reduce__(self) -> Any:
        """Leave it out of a pickled request, and of a deep copy."""
        return type(None), ()

    def tell(self) -> None:
        """Note it for the attempt that runs here, or warn."""
        module, line = str(self.names.get("__name__")), self.line()
        if (id := watch.attempt()) is not None:
            watch.dropped.setdefault(id, []).append(f"the work {self.type!r} ({module}, line {line})")
            return
        warnings.warn_explicit(
            f"the work {self.type!r} was built and never enqueued; write enqueue(…) around it.",
            NeverEnqueued,
            self.code.co_filename,
            line,
            module,
            self.names.setdefault("__warningregistry__", {}),
        )

    def line(self) -> int:
        """Return the line that built the request."""
        lines = self.code.co_lines()
        found = (line for start, end, line in lines if start <= self.instruction < end and line is not None)
        return next(found, self.code.co_firstlineno)


def show_warnings() -> None:
    """Show the warning, unless the user's filters say otherwise; Python's own ignore any ResourceWarning."""
    for action, text, category, module, _ in warnings.filters:
        if text is None and module is None and issubclass(NeverEnqueued, category):
            is_pythons = action == "ignore" and category is ResourceWarning
            if is_pythons and not any("ResourceWarning" in option for option in sys.warnoptions):
                warnings.simplefilter("default", NeverEnqueued)
            return
