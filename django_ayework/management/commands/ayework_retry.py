"""``ayework_retry``: give dead or cancelled works another life."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_ayework.errors import AyeworkError
from django_ayework.flow.retry import dead_ids, retry_each, retryable_in
from django_ayework.management.base import JSONCommand, hints_on_type, require_choice
from django_ayework.rules.states import Reason


class Command(JSONCommand):
    """Retry works by id, those of a group, or all dead ones that match."""

    help = "Retry dead or cancelled works: by id, by group, or all dead ones of a type or reason."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what to retry."""
        super().add_arguments(parser)
        parser.add_argument("ids", nargs="*", metavar="ID")
        parser.add_argument("--group", help="All dead and cancelled works of the group of this id.")
        parser.add_argument("--type", help="All dead works of this type.")
        parser.add_argument(
            "--reason", choices=[str(r) for r in Reason], help="All dead works of this reason."
        )
        parser.add_argument("--all", action="store_true", help="All dead works.")
        parser.add_argument(
            "--again",
            action="store_true",
            help="With ids: run successes again, too, as new works whose parents they are.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Retry one by one, so that one refusal does not undo the others."""
        ids = self.chosen(options)
        report = retry_each(ids, options["again"])
        retried = [id for id in ids if id not in report.refusals]
        refused = {id: str(refusal) for id, refusal in report.refusals.items()}
        hints = [] if ids else hints_on_type(options["type"])
        text = "\n".join([f"Retried {len(retried)} works.", *refused.values(), *hints])
        self.answer({"retried": retried, "refused": refused}, text, options)
        if refused:
            raise CommandError(f"{len(refused)} of {len(ids)} works could not be retried.")

    def chosen(self, options: dict[str, Any]) -> list[str]:
        """Return the ids to retry."""
        require_choice(options, ("type", "reason", "all"), "dead works to retry")
        if options["again"] and not options["ids"]:
            raise CommandError("expected ids with --again, to say which successes to run again.")
        if options["group"]:
            try:
                return retryable_in(options["group"])
            except AyeworkError as refusal:
                raise CommandError(str(refusal)) from refusal
        return options["ids"] or dead_ids(options["type"], options["reason"])
