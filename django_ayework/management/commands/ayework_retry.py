"""``ayework_retry``: give dead or cancelled works another life."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import AyeworkError, did_you_mean
from django_ayework.flow.dead_letters import dead_ids
from django_ayework.flow.retry import retry
from django_ayework.management.output import JSONCommand
from django_ayework.rules.states import Reason


class Command(JSONCommand):
    """Retry works by id, or all dead ones that match."""

    help = "Retry dead or cancelled works: by id, or all dead ones of a type or reason."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what to retry."""
        super().add_arguments(parser)
        parser.add_argument("ids", nargs="*", metavar="ID")
        parser.add_argument("--type", help="All dead works of this type.")
        parser.add_argument(
            "--reason", choices=[str(r) for r in Reason], help="All dead works of this reason."
        )
        parser.add_argument("--all", action="store_true", help="All dead works.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Retry one by one, so that one refusal does not undo the others."""
        ids = self.chosen(options)
        retried, refused = [], {}
        for id in ids:
            try:
                retry(id)
                retried.append(id)
            except AyeworkError as refusal:
                refused[id] = str(refusal)
        hints = [] if ids else hints_on_type(options["type"])
        text = "\n".join([f"Retried {len(retried)} works.", *refused.values(), *hints])
        self.answer({"retried": retried, "refused": refused}, text, options)
        if refused:
            raise CommandError(f"{len(refused)} of {len(ids)} works could not be retried.")

    def chosen(self, options: dict[str, Any]) -> list[str]:
        """Return the ids to retry."""
        narrowed = options["type"] or options["reason"]
        if options["ids"] and (narrowed or options["all"]):
            raise CommandError("expected either ids or --type, --reason, --all, got both.")
        if not options["ids"] and not narrowed and not options["all"]:
            raise CommandError("expected ids, or --type, --reason or --all to say which dead works to retry.")
        return options["ids"] or dead_ids(options["type"], options["reason"])


def hints_on_type(type: str | None) -> list[str]:
    """Return what to say of a type of which nothing is dead, if it is not known here."""
    known = [*registry.names(), GATE_TYPE]
    if type is None or type in known:
        return []
    return [f"No type of work is called {type!r} here.{did_you_mean(type, known)}"]
