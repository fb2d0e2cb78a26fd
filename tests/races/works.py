"""What races; run by worker processes too."""

from __future__ import annotations

from typing import Any

from django_ayework import Context, work
from django_ayework.models import Work
from tests.processes import eventually


@work(name="races.step")
def step(ctx: Context, number: int = 0):
    return ctx.result(number)


def steps(number: int) -> list[Any]:
    return [step(number=n) for n in range(number)]


def pairs_of_steps(number: int) -> list[tuple[Any, Any]]:
    return [(step(), step()) for _ in range(number)]


@work(name="races.share", options=lambda number, queue: {"queue": queue})
def share(ctx: Context, number: int, queue: str):
    """Be done by the process that serves this queue."""
    return ctx.result(number)


@work(name="races.join", options=lambda of, queue: {"blockers": of, "queue": queue})
def join(ctx: Context, of: list[str], queue: str):
    return ctx.result(sum(ctx.blockers))


@work(name="races.meet", options=lambda queue: {"queue": queue})
def meet(queue: str) -> None:
    """Wait until a second worker has one of these."""
    eventually(lambda: len(who_met()) > 1)


def who_met() -> set[str | None]:
    """Return the workers that have had a work to meet."""
    meetings = Work.objects.filter(type=meet.name).values_list("worker", "completed_by")
    return {worker for both in meetings for worker in both} - {None}


@work(name="races.tally")
def tally(ctx: Context, number: int):
    return ctx.result(number, append=lambda total: (total or 0) + number)


@work(name="races.tally_all")
def tally_all(ctx: Context, numbers: int):
    return ctx.queue([tally(number=number) for number in range(numbers)])
