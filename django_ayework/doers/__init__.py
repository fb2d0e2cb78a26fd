"""How many tasks run at a time in one process, how often they may start, and which is next.

Nothing here needs Django until a task runs, so settings and ``works.py`` can build doers as they are read.

>>> doer, done = balanced(2), []
>>> doer.submit(lambda: done.append("tea"), fairness="acme")
>>> doer.drained()
>>> done, doer.available()
(['tea'], 4)
"""

from django_ayework.doers.base import Doer, Hints, TellsRoom, arun, run
from django_ayework.doers.bounded import age, balanced, priority, unlimited
from django_ayework.doers.rate_limited import rate_limited
from django_ayework.rules.controls import Candidate, weights
from django_ayework.rules.health import BacklogInfo
from django_ayework.rules.rates import Allowed, Denied, FixedWindow, SlidingWindow, TokenBucket

__all__ = [
    "Allowed",
    "BacklogInfo",
    "Candidate",
    "Denied",
    "Doer",
    "FixedWindow",
    "Hints",
    "SlidingWindow",
    "TellsRoom",
    "TokenBucket",
    "age",
    "arun",
    "balanced",
    "priority",
    "rate_limited",
    "run",
    "unlimited",
    "weights",
]
