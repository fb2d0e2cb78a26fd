"""Asking for explanations."""

from __future__ import annotations

from typing import Any

from django_ayework import Explanation, explain


def codes(explanation: Explanation) -> list[str]:
    """The codes, in order."""
    return [str(reason.code) for reason in explanation.reasons]


def why(id: str, *expected: str) -> str:
    """Explain a work; assert the codes; return the sentences."""
    explanation = explain(id)
    assert explanation.id == id
    assert codes(explanation) == list(expected), str(explanation)
    return str(explanation)


def facts(id: str, code: str) -> Any:
    """The facts of the reason with this code."""
    [found] = [reason for reason in explain(id).reasons if reason.code == code]
    return found.facts
