"""What SQLite says of its file, and where that file is."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from django.db import OperationalError

from django_ayework.store.database import connection, database_file, fetch

#: Steps of SQLite's virtual machine between two looks at the time.
STEPS = 10_000
#: Errors that the quick check lists.
ERRORS = 5


def settings() -> dict[str, Any]:
    """Return the settings of this connection, and the type of the file system."""
    file = database_file()
    return {
        "journal_mode": str(pragma("journal_mode")),
        "busy_timeout": int(pragma("busy_timeout")),
        "file_system": file_system(file),
        "is_in_memory": file is None,
    }


def pages() -> tuple[int, int, int]:
    """Return the size of the file, of its free pages, and of its write-ahead log."""
    size, log = int(pragma("page_size")), Path(f"{database_file()}-wal")
    of_log = log.stat().st_size if log.exists() else 0
    return int(pragma("page_count")) * size, int(pragma("freelist_count")) * size, of_log


def quick_check(seconds: float) -> list[str] | None:
    """Return the errors that SQLite finds in its file, at most a few; None if it takes longer than this."""
    until = time.monotonic() + seconds
    database: Any = connection()
    database.ensure_connection()
    database.connection.set_progress_handler(lambda: time.monotonic() > until, STEPS)
    try:
        found = [str(text) for (text,) in fetch(f"PRAGMA quick_check({ERRORS})", ())]
    except OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return None
    finally:
        database.connection.set_progress_handler(None, STEPS)
    return [] if found == ["ok"] else found


def file_system(file: str | None) -> str:
    """Return the type of the file system that a file is on; "" where that cannot be found out."""
    mounts = Path("/proc/mounts")
    if file is None or not mounts.exists():
        return ""
    path = os.path.realpath(file)
    types = {fields[1]: fields[2] for fields in map(str.split, mounts.read_text().splitlines())}
    holding = [point for point in types if path.startswith(point.rstrip("/") + "/")]
    return types[max(holding, key=len)] if holding else ""


def pragma(name: str) -> Any:
    """Return the value of a PRAGMA."""
    return fetch(f"PRAGMA {name}", ())[0][0]
