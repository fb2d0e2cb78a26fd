"""What a forked process makes anew: its parent's locks may be held, its threads are gone."""

from __future__ import annotations

import os
from collections.abc import Callable


def after_fork_in_child(callback: Callable[[], object]) -> None:
    """Call this in each forked child, before anything else runs there; systems without fork never call it."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)
