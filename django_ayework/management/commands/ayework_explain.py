"""``ayework_explain``: why a work is not running."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from django_ayework.documentation import see
from django_ayework.flow.explain import explain
from django_ayework.management.base import JSONCommand
from django_ayework.rules.explain import Explanation


class Command(JSONCommand):
    """Explain one work."""

    help = "Say why a work is not running, and what to do about it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the id."""
        super().add_arguments(parser)
        parser.add_argument("id", metavar="ID")

    def handle(self, *args: Any, **options: Any) -> None:
        """Explain, then print."""
        explanation = explain(options["id"])
        self.answer(as_data(explanation), as_text(explanation), options)


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as plain data."""
    reasons = [
        {"code": str(reason.code), "text": reason.text, "facts": dict(reason.facts)}
        for reason in explanation.reasons
    ]
    return {"id": explanation.id, "status": str(explanation.status), "reasons": reasons}


def as_text(explanation: Explanation) -> str:
    """Return an explanation as lines: the status, then each reason and the address of its entry."""
    lines = [f"{explanation.id} is {explanation.status}."]
    for reason in explanation.reasons:
        lines += [f"  {reason.text}", f"  {see('works', reason.code)}"]
    return "\n".join(lines)
