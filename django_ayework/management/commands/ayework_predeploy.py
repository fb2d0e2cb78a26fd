"""``ayework_predeploy``: find stored works that the code at hand could not run."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from django_ayework.define.types import registry
from django_ayework.documentation import see
from django_ayework.flow.predeploy import CheckProgress, FitReport, check_fit
from django_ayework.management.base import JSONCommand, flag, listed, refused
from django_ayework.rules.formatting import counted, duration
from django_ayework.rules.predeploy import MisfitGroup

#: Seconds between two lines about the progress.
EVERY = 5.0


class Command(JSONCommand):
    """Read every waiting work and schedule as a worker with this code would; write nothing."""

    help = (
        "Check, before a deployment, whether all waiting works and schedules fit the code of this checkout. "
        "Nothing is written. Exit status 1: something does not fit."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the bounds, and what is looked at."""
        super().add_arguments(parser)
        add = parser.add_argument
        add("--dead", action="store_true", help="Look at dead works, too: those that are to be retried.")
        add("--queues", help="The queues that the workers will serve, comma separated.")
        add("--max-works", type=int, metavar="N", help="Stop after about this many works.")
        add("--max-seconds", type=float, metavar="S", help="Stop after about this many seconds.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, print, and end with status 1 if something does not fit."""
        for option in ("max_works", "max_seconds"):
            if options[option] is not None and not options[option] > 0:  # nan, too
                raise refused(
                    "number", f"expected {flag(option)} to be greater than 0, got: {options[option]}."
                )
        registry.load()
        self.last = 0.0
        checked = check_fit(
            dead=options["dead"],
            queues=listed(options, "queues"),
            most=options["max_works"],
            seconds=options["max_seconds"],
            report=self.show if options["verbosity"] > 0 else lambda progress: None,
        )
        self.answer(asdict(checked), as_text(checked), options)
        if not checked.fits:
            sys.exit(1)

    def show(self, progress: CheckProgress) -> None:
        """Print a line about the progress, now and then; the check goes on where nobody reads it."""
        if progress.seconds >= self.last + EVERY:
            self.last = progress.seconds
            with suppress(OSError):
                self.stderr.write(
                    f"{progress.works:,} works looked at in {duration(progress.seconds)}, "
                    f"{counted(progress.misfits, 'misfit')}."
                )


def as_text(checked: FitReport) -> str:
    """Return the report as lines."""
    looked_at = (
        f"{counted(checked.works, 'work')} and {counted(checked.schedules, 'schedule')} looked at "
        f"in {duration(checked.seconds)}."
    )
    lines = [line for group in checked.groups for line in group_lines(group)]
    if checked.others:
        lines.append(f"{counted(checked.others, 'misfit')} of further causes are not listed.")
    if not checked.complete:
        lines.append("The check ended at its bound: other works were not looked at.")
    return "\n".join([*lines, looked_at, "Everything fits." if checked.fits else "Do not deploy yet."])


def group_lines(group: MisfitGroup) -> list[str]:
    """Return a group of misfits with its remedy, its examples and the address of its entry."""
    more = len(group.examples) < group.number
    return [
        group.text if group.blocks else f"Note: {group.text}",
        f"  {group.remedy}",
        f"  {'For example' if more else 'Here'}: {', '.join(group.examples)}",
        f"  {see('doctor', group.cause)}",
    ]
