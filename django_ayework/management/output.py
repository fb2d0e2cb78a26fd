"""What the commands print."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.core.serializers.json import DjangoJSONEncoder


class JSONCommand(BaseCommand):
    """A command that also answers in JSON."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Add ``--json``."""
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def answer(self, data: Any, text: str, options: dict[str, Any]) -> None:
        """Print the answer as text, or as JSON."""
        self.stdout.write(json.dumps(data, cls=DjangoJSONEncoder) if options["json"] else text)
