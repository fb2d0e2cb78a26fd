"""The ledger: what processes did, in files beside the database under test.

Each process appends to a file of its own, one JSON object per line and one ``write`` per line, so that a
process that is killed leaves whole lines. ``s`` counts the lines of a file: a missing line shows as a gap.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Ledger:
    """Appends lines to a file of this process."""

    def __init__(self, folder: Path, role: str) -> None:
        path = folder / f"{role}-{os.getpid()}.jsonl"
        self.pid = os.getpid()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._lines = 0

    def write(self, event: str, **facts: Any) -> None:
        """Append a line. It is the kernel's when this returns, so it outlives the process."""
        with self._lock:
            # The monotonic clock is the same in all processes, also where libfaketime changes the other one.
            line = {"e": event, "t": round(time.monotonic(), 4), "pid": self.pid, "s": self._lines} | facts
            os.write(self._file, json.dumps(line).encode() + b"\n")
            self._lines += 1

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


_ledger: Ledger | None = None
_opening = threading.Lock()


def note(event: str, **facts: Any) -> None:
    """Append a line to the ledger of this process, in the folder that ``CHAOS_RUN`` names."""
    global _ledger
    with _opening:
        if _ledger is None or _ledger.pid != os.getpid():
            _ledger = Ledger(Path(os.environ["CHAOS_RUN"]), os.environ.get("CHAOS_ROLE", "worker"))
    _ledger.write(event, **facts)


def read(folder: Path) -> list[Line]:
    """Return the lines of all files by time. A last line without its end is left out: it is not finished."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in lines_of(path)]
    return sorted(lines, key=lambda line: line["t"])


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines of a file, each with the name of the file."""
    for text in path.read_text().splitlines(keepends=True):
        if text.endswith("\n"):
            yield json.loads(text) | {"file": path.name}
