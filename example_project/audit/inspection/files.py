"""Reading files that somebody else named: only regular ones, only so much of them, in chunks."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 20


class NotRegularFile(OSError):
    """It is a directory, a device, a pipe or a socket; such things are never opened."""


class FileTooLarge(OSError):
    """It is larger than any honest file of its kind."""


@contextmanager
def open_regular(path: str | Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file (or a link to one) and give the stream and its size."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularFile("not a regular file")
    with open(path, "rb") as stream:
        yield stream, status.st_size


def chunks(stream: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield at most ``size`` bytes: some files under /proc have no size and never end."""
    while size > 0 and (chunk := stream.read(min(CHUNK, size))):
        size -= len(chunk)
        yield chunk


def read_bounded(path: Path, limit: int) -> bytes | None:
    """Return the content of a regular file, None when there is no such file."""
    try:
        with open_regular(path) as (stream, size):
            if size > limit:
                raise FileTooLarge(f"{size} bytes, more than {limit}")
            return b"".join(chunks(stream, size))
    except (FileNotFoundError, NotADirectoryError):
        return None
