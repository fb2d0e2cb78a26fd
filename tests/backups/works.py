"""Works whose runs are counted outside of the database."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from django_ayework import Context, work

#: How often a handler has run for a number: no restore turns that back.
ran: Counter[int] = Counter()
#: Called by a handler while its work runs.
while_running: list[Callable[[], Any]] = []


@work(name="tests.backups.charge")
def charge(number: int) -> int:
    ran[number] += 1
    return number


@work(name="tests.backups.slow")
def slow(ctx: Context, number: int) -> int:
    ran[number] += 1
    if while_running:
        while_running.pop()()
    return ctx.attempt


@work(name="tests.backups.notify")
def notify(number: int) -> int:
    ran[number] += 1
    return number


@work(name="tests.backups.claims")
def claims(ctx: Context, key: str) -> bool:
    return ctx.claim(key)
