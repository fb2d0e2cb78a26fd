"""Private parts of CPython that the engine uses, one function for each."""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType

_reading_frames = threading.Lock()


def frames_of_thread(thread: int) -> list[FrameType]:
    """Return the frames of another thread, the innermost first; none if there is no such thread.

    Uses ``sys._current_frames``. To read frames makes objects, which may start a garbage collection, and that
    may let other threads run. CPython then looks at memory that is gone, or waits for ever (its issues 106883
    and 111363). So the collector is off meanwhile.

    Checked with CPython 3.11 to 3.13.
    """
    frames: list[FrameType] = []
    with _reading_frames:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            frame = sys._current_frames().get(thread)
            while frame is not None:
                frames.append(frame)
                frame = frame.f_back
        finally:
            if was_enabled:
                gc.enable()
    return frames


def set_async_exception(thread: int, kind: type[BaseException] | None) -> None:
    """Let a class of exception be raised in a thread before its next bytecode; None takes it back.

    Uses ``PyThreadState_SetAsyncExc``. Checked with CPython 3.11 to 3.13.
    """
    value = ctypes.py_object() if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)


def before_threads_end(act: Callable[[], object]) -> None:
    """Call a function when the interpreter ends, before asyncio's executors are shut down.

    Uses ``threading._register_atexit``, whose functions Python calls in reverse order; ``atexit`` comes after
    that, and takes its place where it is missing. Checked with CPython 3.11 to 3.13.
    """
    getattr(threading, "_register_atexit", atexit.register)(act)
