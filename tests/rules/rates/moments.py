"""A clock for limits: moments as milliseconds after noon."""

from datetime import datetime, timedelta

from hypothesis import strategies as st

from tests.rules.moments import NOON

MICROSECOND = timedelta(microseconds=1)
limits = st.integers(1, 7)
windows = st.integers(1, 5_000_000).map(lambda number: timedelta(microseconds=number))
#: Pauses between hits, many of them none at all.
pauses = st.lists(
    st.one_of(
        st.just(timedelta()), st.integers(0, 6_000_000).map(lambda number: timedelta(microseconds=number))
    ),
    max_size=60,
)


def after(milliseconds: float) -> datetime:
    return NOON + timedelta(milliseconds=milliseconds)


def moments_of(gaps: list[timedelta]) -> list[datetime]:
    """The moments that these pauses lead to, one after the other."""
    moment, found = NOON, []
    for gap in gaps:
        moment += gap
        found.append(moment)
    return found
