"""``ayework_prune``: delete rows whose retention has passed."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from django_ayework.flow.maintenance import prune, prune_others
from django_ayework.management.base import JSONCommand, refused
from django_ayework.rules.formatting import counted


class Command(JSONCommand):
    """Delete ended works older than the retention; workers do the same by themselves."""

    help = (
        'Delete works that ended longer ago than AYEWORK["RETENTION"], or the retention of their type, says. '
        "Workers do this by themselves."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the batch size."""
        super().add_arguments(parser)
        parser.add_argument("--batch", type=int, default=1000, help="Works per transaction and status.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Delete in batches until there is nothing left to delete."""
        if options["batch"] < 1:
            raise refused("number", f"expected --batch to be 1 or more, got: {options['batch']}.")
        deleted = prune(options["batch"])
        while prune_others(options["batch"]) >= options["batch"]:
            continue
        self.answer({"deleted": deleted}, f"Deleted {counted(deleted, 'work')}.", options)
