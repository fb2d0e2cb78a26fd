"""What the jobs of a contestant have written, and the gate before which its processes wait."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bench.peers.job import RECORD

#: Seconds until the first process holds a job, and then until the last one does.
FIRST, OTHERS = 45.0, 8.0


class NoJobTaken(Exception):
    """No worker has taken a job in time."""


@dataclass(frozen=True)
class Trace:
    """The folder in which processes check in, and the file to which jobs append."""

    folder: Path

    def reset(self, gate_is_open: bool = False) -> None:
        """Forget the last measurement; with an open gate no job will wait."""
        for path in (self.folder / "trace", self.folder / "gate", *self.folder.glob("in-*")):
            path.unlink(missing_ok=True)
        if gate_is_open:
            (self.folder / "gate").touch()

    def open_gate(self, processes: int) -> float:
        """Wait until so many processes hold a job, let them go, and return when.

        Some contestants never give one of two processes a job: after a while the others go without it.
        Raises NoJobTaken when nobody has come.
        """
        until = time.monotonic() + FIRST
        seen = False
        while (here := self.checked_in()) < processes:
            if here and not seen:
                seen, until = True, time.monotonic() + OTHERS
            if time.monotonic() > until:
                if not here:
                    raise NoJobTaken(f"no worker took a job within {FIRST:.0f} s")
                break
            time.sleep(0.01)
        time.sleep(0.2)
        (self.folder / "gate").touch()
        return time.monotonic()

    def checked_in(self) -> int:
        """Return how many processes have begun their first job."""
        return sum(1 for _ in self.folder.glob("in-*"))

    def count(self) -> int:
        """Return how many jobs have run."""
        try:
            return (self.folder / "trace").stat().st_size // RECORD.size
        except FileNotFoundError:
            return 0

    def moments(self) -> dict[int, float]:
        """Return when each job ran for the first time, in seconds of the monotonic clock, by its number."""
        first: dict[int, float] = {}
        for number, moment in RECORD.iter_unpack((self.folder / "trace").read_bytes()):
            first.setdefault(number, moment)
        return first
