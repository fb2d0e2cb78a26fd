"""What ``schedule()`` gives back: the function itself, or an object that can be cancelled."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, assert_type

from django_ayework import WorkRequest, schedule
from tests.typing.builders import add


def nightly() -> WorkRequest[int, int]:
    """Build a work."""
    return add(a=1, b=2)


def following(now: datetime) -> datetime | None:
    """Tell the next moment."""
    return now + timedelta(minutes=7)


def declare() -> None:
    """Declare schedules in each form; never called."""
    decorated = schedule("0 3 * * *", tz="Europe/Paris", overlap="skip", catch_up="none")(nightly)
    assert_type(decorated, Callable[[], WorkRequest[int, int]])
    schedule(name="tick", every=60, run=nightly, jitter=timedelta(seconds=5)).cancel()
    schedule(name="odd", next=following, run=add(a=1, b=2), start=date(2026, 1, 1)).cancel()
    schedule("@daily", name="type", run=lambda: None, dst="shift").cancel()
    schedule("@daily", overlap="never")  # type: ignore[call-overload]
    wrong: Any = schedule("@daily", run=7)  # type: ignore[call-overload]
    del wrong
