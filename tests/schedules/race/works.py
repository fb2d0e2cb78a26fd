"""Schedules that only processes declare which install this app; the test says when they have occurrences."""

from __future__ import annotations

import os
from datetime import datetime

from django_ayework import schedule, work
from django_ayework.flow import scheduler

scheduler.SOON = 0.0  # who finds a rival at it tries again at once


@work(name="schedules.raced")
def raced(process: int = 0) -> None:
    """Do nothing; the input says who has fired it."""


start, end = (
    datetime.fromisoformat(os.environ[name]) if name in os.environ else None
    for name in ("RACE_START", "RACE_END")
)
schedule(name="race", every=1, run=lambda: raced(process=os.getpid()), catch_up="all", start=start, end=end)
