"""The tracebacks in the logs of workers, and which of them are explained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from chaos.checker import DATABASE_ERRORS

HEADER = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ ")
IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
TRACEBACK = "Traceback (most recent call last)"
FAILED_ATTEMPT = re.compile(r"ayework: Work \S+ \(\S+\) (failed|is dead) ")
REPORT = re.compile(r" \((queue|commit|pubsub) phase\): ")
#: What misbehaves on purpose around handlers.
TROUBLE = "chaos/trouble.py"
#: What handlers of the load raise on purpose, and what the engine raises in them.
PLANNED = (
    "Planned",
    "Panic",
    "SystemExit",
    "KeyboardInterrupt",
    "GeneratorExit",
    "AttemptTimeout",
    "Aborted",
)


def unexplained(folder: Path, is_outage: bool) -> list[str]:
    """Return the tracebacks that neither a handler's failure nor a reported outage explains, shortened."""
    return [
        shortened(block)
        for path in sorted(folder.glob("worker-*.log"))
        for block in blocks(path.read_text(errors="replace"))
        if TRACEBACK in block and not is_explained(block, is_outage)
    ]


def blocks(text: str) -> Iterator[str]:
    """Yield each record of a log with the lines that belong to it."""
    block: list[str] = []
    for line in text.splitlines():
        if HEADER.match(line) and block:
            yield "\n".join(block)
            block = []
        block.append(line)
    if block:
        yield "\n".join(block)


def is_explained(block: str, is_outage: bool) -> bool:
    """Whether a traceback tells what was to be expected."""
    if TROUBLE in block:
        return True
    header, last = block.split("\n")[0], raised(block)
    is_of_server = last.endswith(DATABASE_ERRORS) or last.startswith(("psycopg.errors.", "redis.exceptions."))
    is_of_database = is_outage and is_of_server
    if FAILED_ATTEMPT.search(header):
        return is_of_database or last.endswith(PLANNED)
    return is_of_database and bool(REPORT.search(header))


def raised(block: str) -> str:
    """Return the name of the last exception of a record."""
    # What is raised stands below a line of code; a message may have further lines of its own.
    names = re.findall(r"^[ ]+\S.*\n([\w.]+)(?::|$)", block, re.MULTILINE)
    return names[-1] if names else ""


def shortened(block: str) -> str:
    """Return the first line of a record, without ids, and what was raised: the same for the same trouble."""
    lines = block.split("\n")
    where = [line.strip() for line in lines if line.startswith("  File ")]
    message = IDS.sub("…", HEADER.sub("", lines[0]))[:200]
    return f"{message} | {raised(block)} | {where[-1] if where else ''}"
