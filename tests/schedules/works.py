"""Works and functions that the schedules of this folder run."""

from __future__ import annotations

from django_ayework import Context, work


@work(name="schedules.note")
def note(label: str = "note") -> str:
    """Return its label."""
    return label


@work(name="schedules.offered", schedulable=True)
def offered(days: int, label: str = "offered") -> int:
    """Be scheduled in the admin."""
    return days


@work(name="schedules.family")
def family(ctx: Context):
    """Queue another work into the same group."""
    return ctx.queue([note(label="child")])


@work(name="schedules.steps")
def steps(ctx: Context):
    """Hand over to a second step."""
    return ctx.continue_with(note(label="step"))
