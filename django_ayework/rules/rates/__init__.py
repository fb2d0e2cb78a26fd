"""How often something may happen: three ways to count, exact to the microsecond.

>>> from datetime import UTC, datetime, timedelta
>>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
>>> rate = FixedWindow(limit=1, window=60)
>>> rate.hit(noon), rate.hit(noon + timedelta(seconds=45))
(Allowed(), Denied(retry_after=15.0))
"""

from django_ayework.rules.rates.algorithms import ALGORITHMS, Algorithm, algorithm_named
from django_ayework.rules.rates.fixed_window import FixedWindow
from django_ayework.rules.rates.rate import Name, Rate, State
from django_ayework.rules.rates.sliding_window import SlidingWindow
from django_ayework.rules.rates.token_bucket import TokenBucket
from django_ayework.rules.rates.verdict import Allowed, Denied, Verdict

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Allowed",
    "Denied",
    "FixedWindow",
    "Name",
    "Rate",
    "SlidingWindow",
    "State",
    "TokenBucket",
    "Verdict",
    "algorithm_named",
]
