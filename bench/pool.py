"""How much of its tables MariaDB keeps in memory while something is measured.

It reads what is not there past the system's cache, and has 128 MiB unless set: less than 300 000 works
take with their indexes. Then the disk is measured, too.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.peers.scratch import mysql_connection
from tests.databases import SERVICES

#: As "1G" or "512M"; empty for what the server has.
WANTED = os.environ.get("BENCH_POOL", "")
UNITS = {"M": 20, "G": 30}
#: Seconds that a resize may take.
LONGEST_RESIZE = 60.0


@contextmanager
def buffer_pool(database: str, wanted: str = WANTED) -> Iterator[None]:
    """Say what MariaDB has, or give it so much, and give back what it had; nothing on other databases."""
    if database != "mariadb":
        yield
        return
    with mysql_connection(SERVICES[database].url) as connection, connection.cursor() as cursor:
        before = size_of_pool(cursor)
        try:
            resize(cursor, bytes_of(wanted) if wanted else before)
            hint = f"instead of {before >> 20}" if wanted else "POOL=3G would give it more"
            print(f"MariaDB keeps {size_of_pool(cursor) >> 20} MiB in memory for this run; {hint}")
            yield
        finally:
            resize(cursor, before)


def bytes_of(size: str) -> int:
    """Return a size as a number of bytes; raise ValueError for what is none.

    >>> bytes_of("512M"), bytes_of("1G")
    (536870912, 1073741824)
    """
    match = re.fullmatch(r"(\d+)([MG])", size.strip().upper())
    if match is None:
        raise ValueError(f"POOL must be a size like 512M or 1G, not {size!r}")
    return int(match[1]) << UNITS[match[2]]


def size_of_pool(cursor: Any) -> int:
    """Return how many bytes the server keeps in memory."""
    cursor.execute("SELECT @@GLOBAL.innodb_buffer_pool_size")
    return int(cursor.fetchall()[0][0])


def resize(cursor: Any, size: int) -> None:
    """Give the server so many bytes if it has not, and wait until it has: a thread of its own resizes."""
    if size_of_pool(cursor) == size:
        return
    cursor.execute("SET GLOBAL innodb_buffer_pool_size = %s", (size,))
    until = time.monotonic() + LONGEST_RESIZE
    while size_of_pool(cursor) != size and time.monotonic() < until:
        time.sleep(0.05)
