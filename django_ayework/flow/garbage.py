"""Garbage collection beside very many objects that are all in use."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager

#: From how many objects on it is worthwhile to keep the collector from them.
MANY = 1000


@contextmanager
def collecting_only_what_is_new(objects: int) -> Generator[None]:
    """Let the collector look at what is made inside, not at everything there is, if that is very much.

    Twenty thousand requests and their handles make it look through the whole process once or twice, and find
    nothing. A process that has frozen its objects itself, as servers do before they fork, is left alone.
    """
    if objects < MANY or not hasattr(gc, "freeze") or gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def leave_out_what_is_loaded() -> None:
    """Let the collector never look again at what this process has loaded so far: all of it stays in use.

    For processes that do nothing but work, before they start threads or children. To look through a project
    takes a twentieth of a second and more, in which nothing else runs; each group of some thousand works
    made that happen. Children share the memory for longer, as nothing is noted on it.
    """
    if hasattr(gc, "freeze"):
        gc.freeze()
