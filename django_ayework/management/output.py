"""What the commands print."""

from __future__ import annotations

import json
import logging
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error

from django_ayework.flow.readiness import text_of_trouble


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


def show_engine_log(verbosity: int) -> None:
    """Show the engine's log on the terminal unless the project has configured logging for it."""
    logger = logging.getLogger("django_ayework")
    if not logger.hasHandlers():
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    if logger.level == logging.NOTSET and verbosity > 0:
        logger.setLevel(logging.INFO)
