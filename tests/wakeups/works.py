"""Works that worker processes of these tests run."""

from pathlib import Path

from django_ayework import Context, work
from tests.processes import eventually

NEVER_IN_A_TEST = 60.0


@work(name="wakeups.quick")
def quick(number: int = 0) -> int:
    return number


@work(name="wakeups.other")
def other(number: int = 0) -> int:
    return number


@work(name="wakeups.hold")
def hold(ctx: Context, place: str) -> str:
    """Say that it has started, and hold its slot until there is a file that says go."""
    Path(place, "started").touch()
    eventually(Path(place, "go").exists, NEVER_IN_A_TEST)
    return "went"


@work(name="wakeups.until_aborted")
def until_aborted(ctx: Context, place: str) -> None:
    """Say that it has started, and why it was aborted."""
    Path(place, "started").touch()
    ctx.signal.wait(NEVER_IN_A_TEST)
    Path(place, "reason").write_text(str(ctx.signal.reason))


@work(name="wakeups.fan_out")
def fan_out(ctx: Context, number: int):
    return ctx.queue([quick(number=n) for n in range(number)]).next([quick(number=-1)])
