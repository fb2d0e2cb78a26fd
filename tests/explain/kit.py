"""Asking for explanations, and the works that are explained."""

from __future__ import annotations

from typing import Any

from django_ayework import Abort, Defer, explain, work

#: A moment, and a moment with its distance from now.
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+"
DISTANT = rf"{MOMENT} \([^)]+\)"


@work(name="explain.defer")
def defer(seconds: int) -> None:
    raise Defer(delay=seconds)


@work(name="explain.give_up")
def give_up() -> None:
    raise Abort("no card")


@work(name="explain.one")
def one(number: int = 1) -> int:
    return number


def why(work: Any, *expected: str) -> str:
    """Explain a work; assert the codes; return the sentences."""
    explanation = explain(work.id)
    assert explanation.id == work.id
    assert [str(reason.code) for reason in explanation.reasons] == list(expected), str(explanation)
    return str(explanation)


def facts(work: Any, code: str) -> Any:
    """The facts of the reason with this code."""
    [found] = [reason for reason in explain(work.id).reasons if reason.code == code]
    return found.facts
