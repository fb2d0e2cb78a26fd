"""Making ids: UUID version 7, so that ids sort by birth, also within one millisecond of one process."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator

from django_ayework.compat import after_fork_in_child
from django_ayework.rules.identity import require_work_id, uuid7

#: How many ids' chance is drawn at a time: each draw asks the system.
DRAWN = 256

_lock = threading.Lock()
_last_tick = 0
_chance: Iterator[tuple[int]] = iter(())


def new_uuid7() -> str:
    """Return a new id; each is greater than the one before it in this process.

    The 12 bits after the milliseconds hold the fraction of the millisecond (RFC 9562 §6.2, method 3).
    """
    tick = next_tick()
    return uuid7(tick >> 12, (tick & 0xFFF) << 62 | chance())


def next_tick() -> int:
    """Return the time in 4096ths of a millisecond, strictly growing even when the clock goes back."""
    global _last_tick
    tick = time.time_ns() * 4096 // 1_000_000
    with _lock:
        _last_tick = tick = max(tick, _last_tick + 1)
    return tick


def chance() -> int:
    """Return 62 random bits, each of which the system has drawn for this process."""
    global _chance
    drawn = next(_chance, None)
    if drawn is None:
        _chance = struct.iter_unpack("Q", os.urandom(8 * DRAWN))
        drawn = next(_chance)
    return drawn[0] >> 2


def begin_anew() -> None:
    """Draw anew in a forked process, which has what its parent is about to use and perhaps a locked lock."""
    global _chance, _lock
    _chance, _lock = iter(()), threading.Lock()


after_fork_in_child(begin_anew)


class IdFactory:
    """The one place ids of works come from; ``custom`` returns what replaces it, from ``AYEWORK["ID"]``."""

    def __init__(self) -> None:
        self.custom: Callable[[], Callable[[], str] | None] = lambda: None

    def __call__(self) -> str:
        """Return a new id. Raises InvalidWorkId when a custom one cannot be used."""
        make = self.custom()
        return new_uuid7() if make is None else require_work_id(make())


new_id = IdFactory()
