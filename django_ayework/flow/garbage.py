"""Garbage collection in processes that do nothing but work."""

from __future__ import annotations

import gc


def leave_out_what_is_loaded() -> None:
    """Let the collector never look again at what this process has loaded so far: all of it stays in use.

    For processes that do nothing but work, before they start threads or children. To look through a project
    takes a twentieth of a second and more, in which nothing else runs; each group of some thousand works
    made that happen. Children share the memory for longer, as nothing is noted on it.
    """
    if hasattr(gc, "freeze"):
        gc.freeze()
