"""``ayework_pause``: claim no works of types or queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from django_ayework.flow.controls import pause
from django_ayework.management.base import JSONCommand, refused
from django_ayework.store.database import atomic


class Command(JSONCommand):
    """Pause types and queues by name: all that are given, or none if one of them is refused."""

    help = "Pause types or queues: workers claim no works of them, and running works continue."
    act: ClassVar[Callable[..., None]] = staticmethod(pause)
    acted = "paused"

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what is paused."""
        super().add_arguments(parser)
        parser.add_argument("--type", nargs="+", metavar="NAME", default=[], help="These types.")
        parser.add_argument("--queue", nargs="+", metavar="NAME", default=[], help="These queues.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Pause, then print."""
        types, queues = options["type"], options["queue"]
        if not (types or queues):
            raise refused(
                "choice", f"expected --type or --queue to say which types or queues are {self.acted}."
            )
        with atomic():
            for type in types:
                self.act(type=type)
            for queue in queues:
                self.act(queue=queue)
        text = f"{self.acted.capitalize()}: {', '.join([*types, *queues])}."
        self.answer({self.acted: {"types": types, "queues": queues}}, text, options)
