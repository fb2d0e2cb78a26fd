"""``ayework_limit``: change the limit, the weight or the priority of a type."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from django_ayework.flow.controls import CHECKS, limit
from django_ayework.management.base import JSONCommand, flag, refused


class Command(JSONCommand):
    """Change how works of one type are claimed, in all workers; what is not given stays."""

    help = "Change the limit, the weight or the priority of a type, in all workers."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the type and its values."""
        super().add_arguments(parser)
        parser.add_argument("type", metavar="NAME", help="The type.")
        parser.add_argument(
            "--max-running",
            type=int,
            metavar="N",
            help="How many of its works may run at a time; 0 for any number.",
        )
        parser.add_argument("--weight", type=int, metavar="N", help="Its share among types of its priority.")
        parser.add_argument("--priority", type=int, metavar="N", help="Larger ones are served first.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Change, then print."""
        values = {name: options[name] for name in CHECKS if options[name] is not None}
        if not values:
            flags = " or ".join(map(flag, CHECKS))
            raise refused("choice", f"expected {flags} to say which limit of {options['type']} is changed.")
        limit(options["type"], **values)
        text = ", ".join(f"{name} {value}" for name, value in values.items())
        self.answer({"type": options["type"], **values}, f"{options['type']}: {text}.", options)
