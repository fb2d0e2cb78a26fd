"""Moments and how to draw some."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import strategies as st

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
zones = st.builds(timezone, st.integers(-23, 23).map(lambda hours: timedelta(hours=hours)))
moments = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=zones)
