"""``ayework_doctor``: what is wrong with the queue and its database, and what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django_ayework.define.types import registry
from django_ayework.documentation import see
from django_ayework.flow.diagnosis import diagnose
from django_ayework.management.base import SYSTEM_CHECKS, JSONCommand, system_checks
from django_ayework.rules.diagnosis import Diagnosis, Level, worst
from django_ayework.store.database import alias

#: How a level is printed.
WORDS = {Level.NOT_APPLICABLE: "n/a"}


class Command(JSONCommand):
    """Run every check, print each finding with what to do, and end with status 1 if there is a problem."""

    help = (
        "Check the queue, its workers and its database: plans, dead rows, open transactions, wake-ups, "
        "connections, clocks and settings. Nothing is written. Exit status 1: there is a problem."
    )
    #: The system checks are one of the checks, so that a failing one is a finding.
    requires_system_checks: Sequence[str] = ()  # type: ignore[assignment]

    def handle(self, *args: Any, **options: Any) -> None:
        """Check, print, and end with the status."""
        registry.load()
        found = [*diagnose()]
        if all(each.level is not Level.PROBLEM for each in found[:1]):  # the database answers
            found += system_checks()
        level = worst(found)
        self.answer(
            {"database": alias(), "level": level, "findings": [asdict(each) for each in found]},
            "\n".join(line for each in found for line in lines_of(each)),
            options,
        )
        if level is Level.PROBLEM:
            sys.exit(1)


def lines_of(finding: Diagnosis) -> list[str]:
    """Return a finding as a line, and below it what to do and the address of its entry."""
    word = WORDS.get(finding.level, finding.level.value)
    below = [finding.remedy] if finding.remedy else []
    if below and finding.check != SYSTEM_CHECKS:
        below.append(see("doctor", finding.check))
    return [f"{word:<8} {finding.check:<17} {finding.text}", *(f"{'':<26} {line}" for line in below)]
