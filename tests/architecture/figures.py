"""How large the package is, and how far one work travels in it: ``make size``.

Code lines hold a token of code: no blanks, comments, docstrings or migrations. A trip counts the functions
and files of the package that run in any thread while one work is enqueued, run, or retried on SQLite.
"""

from __future__ import annotations

import ast
import io
import logging
import os
import statistics
import sys
import tempfile
import threading
import time
import tokenize
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from tests.architecture.sources import PACKAGE, ROOT, files

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
INNER = {"<genexpr>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<module>"}
#: Seconds in which a worker comes to rest, so that its own turns are not counted.
REST = 2.0


def code_lines(path: Path) -> int:
    """Return how many lines of a file hold code."""
    source = path.read_bytes()
    lines: set[int] = set()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines.difference(docstring_lines(ast.parse(source))))


def docstring_lines(tree: ast.Module) -> Iterator[int]:
    """Yield the lines that docstrings take."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            yield from range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def function_lengths() -> list[int]:
    """Return the lines of each function of the package, docstring included, in ascending order."""
    return sorted(
        node.end_lineno - node.lineno + 1
        for path in files()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno
    )


def sizes() -> dict[str, int]:
    """Return the figures of size by name."""
    lengths = function_lengths()
    return {
        "code lines of the package": sum(map(code_lines, files())),
        "files of the package": len(list(PACKAGE.rglob("*.py"))),
        "lines of a function, median": int(statistics.median(lengths)),
        "lines of a function, 95 % are no longer": lengths[int(len(lengths) * 0.95)],
        "lines of the longest file": max(len(path.read_text().splitlines()) for path in files()),
        "lines of the tests": sum(len(path.read_text().splitlines()) for path in files(ROOT / "tests")),
    }


class Trip:
    """Collects the functions of the package that are entered in any thread while it is open."""

    def __init__(self) -> None:
        self.is_open = False
        self.entered: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        is_ours = code.co_filename.startswith(f"{PACKAGE}{os.sep}") and code.co_name not in INNER
        if self.is_open and event == "call" and is_ours:
            self.entered.append((code.co_filename, code.co_qualname))

    def of(self, act: Callable[[], object]) -> tuple[int, int, int]:
        """Return how many functions and files an act enters, and how often the file changes."""
        self.entered.clear()
        self.is_open = True
        try:
            act()
        finally:
            self.is_open = False
        visited = [file for file, _ in self.entered]
        changes = sum(before != after for before, after in pairwise(visited))
        return len(set(self.entered)), len(set(visited)), changes


def trips(folder: str) -> dict[str, tuple[int, int, int]]:
    """Return functions, files and changes of file by trip."""
    set_up(folder)
    trip = Trip()
    threading.setprofile(trip)
    sys.setprofile(trip)
    from django_ayework import Context, Retry, Worker, enqueue, retry, work

    @work(name="trips.add")
    def add(a: int, b: int) -> int:
        return a + b

    @work(name="trips.answer")
    def answer(ctx: Context, a: int):
        return ctx.result(a)

    @work(name="trips.fan")
    def fan(ctx: Context, n: int):
        return ctx.queue([add(a=number, b=1) for number in range(n)]).next(add(a=0, b=0))

    repaired: list[bool] = []

    @work(name="trips.fail", retry=Retry(attempts=1))
    def fail() -> None:
        if not repaired:
            raise RuntimeError("as planned")

    def ended(request: Any) -> str:
        id = enqueue(request).id
        await_the_end()
        return id

    for _ in range(3):
        enqueue(add(a=1, b=2))
    plain = add(a=1, b=2)
    found = {"enqueue, no options": trip.of(lambda: enqueue(plain))}
    with Worker(concurrency=2):
        time.sleep(REST)
        for _ in range(3):
            ended(answer(a=1))
        dead = ended(fail())
        for name, request in (("a work, claimed to settled", answer(a=1)), ("fan-out of 3, gate", fan(n=3))):
            time.sleep(REST)
            handle = enqueue(request)
            found[name] = trip.of(await_the_end)
            del handle
        time.sleep(REST)
        repaired.append(True)
        found["retry by hand"] = trip.of(lambda: retry(dead))
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    return found


def await_the_end() -> None:
    """Return when all works have ended, without a call of the package."""
    from django.db import connection

    while True:
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM django_ayework_work WHERE ended_at IS NULL")
            if cursor.fetchone() == (0,):
                return
        time.sleep(0.002)


def set_up(folder: str) -> None:
    """Configure Django with an SQLite file in a folder, and migrate it."""
    import django
    from django.conf import settings
    from django.core.management import call_command

    options = {
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/queue.sqlite3", "OPTIONS": options}
    settings.configure(
        SECRET_KEY="trips",
        INSTALLED_APPS=["django_ayework"],
        DATABASES={"default": database},
        USE_TZ=True,
        LOGGING_CONFIG=None,
    )
    logging.disable()  # the work that fails is meant to
    django.setup()
    call_command("migrate", verbosity=0)


def main() -> None:
    """Print all figures."""
    for name, figure in sizes().items():
        print(f"{name:42s} {figure:7,}")
    print(f"\n{'trip':42s} {'functions':>10s} {'files':>6s} {'changes of file':>16s}")
    with tempfile.TemporaryDirectory() as folder:
        for name, (functions, visited, changes) in trips(folder).items():
            print(f"{name:42s} {functions:10d} {visited:6d} {changes:16d}")


if __name__ == "__main__":
    main()
