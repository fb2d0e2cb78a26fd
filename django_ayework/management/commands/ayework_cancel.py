"""``ayework_cancel``: end works that have not ended."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from django_ayework.flow.acts import each
from django_ayework.flow.termination import cancel_group, cancel_one, cancel_type
from django_ayework.management.base import WorksCommand


class Command(WorksCommand):
    """Cancel works by id, those of a group, or all that match; the latter page by page."""

    help = "Cancel works that have not ended: by id, by group, or all of a type."
    acted, expected, matching = "cancelled", "works to cancel", ("type", "all")

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the works to cancel."""
        super().add_arguments(parser)
        parser.add_argument("ids", nargs="*", metavar="ID")
        parser.add_argument("--group", help="All works of the group of this id that have not ended.")
        parser.add_argument("--type", help="All works of this type that have not ended.")
        parser.add_argument("--all", action="store_true", help="All works that have not ended.")

    def act(self, options: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
        """Cancel."""
        if options["group"]:
            return cancel_group(options["group"]), {}
        if not options["ids"]:
            return cancel_type(options["type"]), {}
        report = each(options["ids"], cancel_one)
        return report.done, report.refused
