"""When a worker has done enough, and makes room for another process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django_ayework.worker.memory import resident_bytes

logger = logging.getLogger("django_ayework")

MEGABYTE = 2**20
#: Seconds between two looks at the memory.
LOOK_EVERY = 1.0


class Limits:
    """``max_works`` attempts, or more than ``max_memory`` megabytes: then no work is claimed any more."""

    def __init__(self, max_works: int | None, max_memory: int | None) -> None:
        self.max_works = max_works
        self.max_memory = max_memory
        #: What was reached, in words; once it is, it stays so.
        self.reached = ""
        self._looked_at = float("-inf")

    def room(self, wanted: int, attempts: int) -> int:
        """Return how many of the wanted works may be claimed after so many attempts."""
        left = self.attempts_left(attempts)
        return wanted if left is None else min(wanted, left)

    def attempts_left(self, attempts: int) -> int | None:
        """Return how many more attempts may be made after so many; None for any number."""
        if self.reached:
            return 0
        return None if self.max_works is None else max(0, self.max_works - attempts)

    def judge(self, attempts: int, all_begun: Callable[[], bool]) -> bool:
        """Tell whether a limit is reached. Attempts count once begun: until then works may be given back."""
        if not self.reached:
            self.reached = self._by_works(attempts, all_begun) or self._by_memory()
            if self.reached:
                logger.info("The worker claims no more: %s.", self.reached)
        return bool(self.reached)

    def _by_works(self, attempts: int, all_begun: Callable[[], bool]) -> str:
        if self.max_works is None or attempts < self.max_works or not all_begun():
            return ""
        return f"{attempts} attempts were made, of {self.max_works}"

    def _by_memory(self) -> str:
        now = time.monotonic()
        if self.max_memory is None or now - self._looked_at < LOOK_EVERY:
            return ""
        self._looked_at = now
        megabytes = resident_bytes() / MEGABYTE
        if megabytes <= self.max_memory:
            return ""
        return f"{megabytes:.0f} MB are in use, more than {self.max_memory}"
