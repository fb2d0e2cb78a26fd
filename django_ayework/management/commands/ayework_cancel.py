"""``ayework_cancel``: end works that have not ended."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_ayework.errors import AyeworkError
from django_ayework.flow.acting import cancel_group, cancel_one, cancel_type
from django_ayework.management.base import JSONCommand, hints_on_type, require_choice


class Command(JSONCommand):
    """Cancel works by id, those of a group, or all that match."""

    help = "Cancel works that have not ended: by id, by group, or all of a type."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what to cancel."""
        super().add_arguments(parser)
        parser.add_argument("ids", nargs="*", metavar="ID")
        parser.add_argument("--group", help="All works of the group of this id that have not ended.")
        parser.add_argument("--type", help="All works of this type that have not ended.")
        parser.add_argument("--all", action="store_true", help="All works that have not ended.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Cancel by id one by one, so that one refusal does not undo the others; all else page by page."""
        require_choice(options, ("type", "all"), "works to cancel")
        cancelled, refused = cancel_each(options["ids"]) if options["ids"] else (self.matching(options), {})
        hints = [] if cancelled or refused else hints_on_type(options["type"])
        text = "\n".join([f"Cancelled {len(cancelled)} works.", *refused.values(), *hints])
        self.answer({"cancelled": cancelled, "refused": refused}, text, options)
        if refused:
            raise CommandError(f"{len(refused)} of {len(options['ids'])} works could not be cancelled.")

    def matching(self, options: dict[str, Any]) -> list[str]:
        """Cancel the works of a group, of a type, or all; return their ids."""
        if not options["group"]:
            return cancel_type(options["type"])
        try:
            return cancel_group(options["group"])
        except AyeworkError as refusal:
            raise CommandError(str(refusal)) from refusal


def cancel_each(ids: list[str]) -> tuple[list[str], dict[str, str]]:
    """Cancel works one by one; return the ids of those that were, and why others were not."""
    cancelled: list[str] = []
    refused: dict[str, str] = {}
    for id in ids:
        try:
            cancelled.append(cancel_one(id).id)
        except AyeworkError as refusal:
            refused[id] = str(refusal)
    return cancelled, refused
