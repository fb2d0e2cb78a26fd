"""The works that are explained here."""

from __future__ import annotations

from django_ayework import Abort, Defer, work


@work(name="explain.defer")
def defer(seconds: int) -> None:
    raise Defer(delay=seconds)


@work(name="explain.give_up")
def give_up() -> None:
    raise Abort("no card")


@work(name="explain.one")
def one(number: int) -> int:
    return number
