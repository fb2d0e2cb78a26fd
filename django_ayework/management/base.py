"""What the commands share: choosing works, and output."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error

from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import did_you_mean
from django_ayework.flow.readiness import text_of_trouble

# --- choosing ---
# Choosing the works that a command acts on: by id, by group, or by what they have in common.


def require_choice(options: dict[str, Any], names: tuple[str, ...], which: str) -> None:
    """Raise CommandError unless works are chosen in one way: by ids, by --group, or by the options named."""
    said = ", ".join(f"--{name}" for name in names)
    narrowed = any(options[name] for name in names)
    if options["ids"] and narrowed:
        raise CommandError(f"expected either ids or {said}, got both.")
    if options["group"] and (options["ids"] or narrowed):
        raise CommandError(f"expected --group alone, or else ids or {said}, got both.")
    if not (options["ids"] or options["group"] or narrowed):
        *others, last = (f"--{name}" for name in names)
        ways = f"{', '.join(['ids, or --group', *others])} or {last}"
        raise CommandError(f"expected {ways} to say which {which}.")


def hints_on_type(type: str | None) -> list[str]:
    """Return what to say of a type of which nothing was found, if it is not known here."""
    known = [*registry.names(), GATE_TYPE]
    if type is None or type in known:
        return []
    return [f"No type of work is called {type!r} here.{did_you_mean(type, known)}"]


# --- output ---
# What the commands print.


class DatabaseCommand(BaseCommand):
    """A command that says in a sentence when the database is away, or lacks migrations."""

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run."""
        try:
            return super().execute(*args, **options)
        except Error as error:
            if (text := text_of_trouble(error)) is None:
                raise
            raise CommandError(text) from error
        except ImproperlyConfigured as refusal:
            raise CommandError(str(refusal)) from refusal


class JSONCommand(DatabaseCommand):
    """A command that also answers in JSON."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--json``."""
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def answer(self, data: Any, text: str, options: dict[str, Any]) -> None:
        """Print the answer as text, or as JSON."""
        self.stdout.write(json.dumps(data, cls=DjangoJSONEncoder) if options["json"] else text)


class NameFilter(logging.Filter):
    """Puts the name of the worker in front of each message."""

    def __init__(self, worker: str) -> None:
        super().__init__()
        self.worker = worker

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the name; every record passes."""
        name = self.worker.replace("%", "%%") if record.args else self.worker
        record.msg = f"[{name}] {record.msg}"
        return True


@contextmanager
def log_named(worker: str) -> Iterator[None]:
    """Let the engine's log lines that are written in the block carry the name of a worker, if it has one."""
    logger = logging.getLogger("django_ayework")
    before = logger.filters[:]
    others = [each for each in before if not isinstance(each, NameFilter)]
    logger.filters = [*others, *([NameFilter(worker)] if worker else [])]
    try:
        yield
    finally:
        logger.filters = before


def show_engine_log(verbosity: int) -> None:
    """Show the engine's log on the terminal unless the project has configured logging for it."""
    logger = logging.getLogger("django_ayework")
    if not logger.hasHandlers():
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    if logger.level == logging.NOTSET and verbosity > 0:
        logger.setLevel(logging.INFO)
