"""``ayework_retry``: let dead or cancelled works start over."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from django_ayework.flow.acts import dead_ids, retry_each, retryable_in
from django_ayework.management.base import WorksCommand, refused
from django_ayework.rules.states import Reason


class Command(WorksCommand):
    """Retry works by id, those of a group, or all dead ones that match."""

    help = "Retry dead or cancelled works: by id, by group, or all dead ones of a type or reason."
    acted, expected, matching = "retried", "dead works to retry", ("type", "reason", "all")

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the works to retry."""
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

    def act(self, options: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
        """Retry; works that wait again because of that count as retried."""
        if options["again"] and not options["ids"]:
            raise refused("choice", "expected ids with --again, to say which successes to run again.")
        ids = options["ids"]
        if options["group"]:
            ids = retryable_in(options["group"])
        elif not ids:
            ids = dead_ids(options["type"], options["reason"])
        refused_works = retry_each(ids, options["again"]).refused
        return [id for id in ids if id not in refused_works], refused_works
