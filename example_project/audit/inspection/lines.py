"""Counting lines of code: lines that are neither empty nor only a comment."""

from __future__ import annotations

from pathlib import PurePosixPath

LINE_COMMENTS: dict[str, bytes] = {
    ".py": b"#",
    ".pyi": b"#",
    ".pyx": b"#",
    ".pxd": b"#",
    ".c": b"//",
    ".h": b"//",
    ".cc": b"//",
    ".cpp": b"//",
    ".rs": b"//",
    ".js": b"//",
    ".ts": b"//",
}


class LineCounter:
    r"""Counts lines fed in chunks of any length, in any encoding that keeps ASCII as it is.

    Of an unfinished line only its first two characters are kept: enough to tell a comment, and a
    minified file of one endless line costs no memory. Docstrings count as code.

    >>> counter = LineCounter(b"#")
    >>> for chunk in (b"# head\n\nimp", b"ort os\n", b"x = 1"):
    ...     counter.feed(chunk)
    >>> counter.lines
    2
    """

    def __init__(self, comment: bytes) -> None:
        self._comment = comment
        self._finished = 0
        self._head = b""

    def feed(self, chunk: bytes) -> None:
        """Count the lines that end in this chunk and remember how the last one begins."""
        first, *others = chunk.split(b"\n")
        self._extend(first)
        for line in others:
            self._finished += self._is_code()
            self._head = b""
            self._extend(line)

    @property
    def lines(self) -> int:
        """Lines of code so far, the unfinished one included."""
        return self._finished + self._is_code()

    def _extend(self, piece: bytes) -> None:
        if len(self._head) < 2:
            self._head = (self._head + piece).lstrip()[:2]

    def _is_code(self) -> bool:
        return bool(self._head) and not self._head.startswith(self._comment)


def counter_for(path: str) -> LineCounter | None:
    """Return a counter for a source file, None for anything else.

    >>> counter_for("logo.png") is None
    True
    """
    comment = LINE_COMMENTS.get(PurePosixPath(path).suffix.lower())
    return None if comment is None else LineCounter(comment)
