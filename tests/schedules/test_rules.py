"""What the rules of schedules hold to, whatever the schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_ayework.rules.schedules import BOUND, PUNCTUAL, Timing, plan

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
MOMENTS = st.integers(-(10**6), 10**6).map(lambda number: NOON + timedelta(milliseconds=number * 977))
TIMINGS = st.one_of(
    st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "15 3 * * 1", "3-9 */5 * * *"]).map(
        lambda cron: Timing(cron=cron, tz="America/New_York")
    ),
    st.tuples(st.integers(1, 10_000), MOMENTS).map(lambda drawn: Timing(every=drawn[0], anchor=drawn[1])),
)
SPANS = st.integers(0, 60_000).map(lambda seconds: timedelta(seconds=seconds))


@settings(deadline=None, max_examples=60)
@given(TIMINGS, MOMENTS)
def test_the_next_occurrence_is_later_and_there_is_none_in_between(timing, moment):
    found = timing.first_after(moment)
    assert found > moment
    assert timing.first_after(moment + (found - moment) / 2) == found
    assert timing.first_after(found - timedelta(microseconds=1)) == found


@settings(deadline=None, max_examples=60)
@given(TIMINGS, MOMENTS, SPANS, st.integers(1, 50))
def test_the_latest_are_the_last_of_all(timing, moment, span, number):
    first = timing.first_after(moment)
    everything = list(timing.between(first - timedelta(microseconds=1), first + span))
    if len(everything) < 5000:
        assert timing.latest(first, first + span, number) == everything[-number:]


@settings(deadline=None, max_examples=60)
@given(TIMINGS, MOMENTS, SPANS, st.sampled_from(["none", "last", "all"]))
def test_every_occurrence_is_fired_or_missed_and_what_follows_is_later(timing, moment, span, catch_up):
    first = timing.first_after(moment)
    now = first + span
    decided = plan(timing, first, now, catch_up, PUNCTUAL)
    due = timing.latest(first, now, BOUND * 2)
    assert decided.last <= now < timing.first_after(due[-1])
    left = [occurrence for occurrence in due if occurrence > decided.last]
    if len(due) < BOUND:
        assert decided.missed + (decided.fire is not None) + len(left) == len(due)
    if catch_up == "all":
        assert len(left) < BOUND
    else:
        assert left == []
    if catch_up == "none":
        assert decided.fire is None or now - decided.fire <= PUNCTUAL
    else:
        assert decided.fire is not None


def test_years_asleep_are_decided_at_once():
    timing = Timing(cron="* * * * *")
    decided = plan(timing, NOON, NOON + timedelta(days=3650), "last", PUNCTUAL)
    assert decided.fire == NOON + timedelta(days=3650)
    assert decided.missed == BOUND
    decided = plan(timing, NOON, NOON + timedelta(days=3650), "all", PUNCTUAL)
    assert decided.fire == NOON + timedelta(days=3650) - timedelta(minutes=BOUND - 1)


def test_a_start_is_the_first_occurrence_of_an_interval_and_an_end_may_be_the_last():
    timing = Timing(every=60, anchor=NOON - timedelta(seconds=7), start=NOON, end=NOON + timedelta(minutes=2))
    assert list(timing.between(NOON - timedelta(days=1), NOON + timedelta(days=1))) == [
        NOON,
        NOON + timedelta(minutes=1),
        NOON + timedelta(minutes=2),
    ]


@pytest.mark.parametrize(
    ("dst", "expected"), [("skip", "2026-03-09 06:30:00+00:00"), ("shift", "2026-03-08 07:00:00+00:00")]
)
def test_the_missing_hour(dst, expected):
    timing = Timing(cron="30 2 * * *", tz="America/New_York", dst=dst)
    assert str(timing.first_after(datetime(2026, 3, 8, 1, tzinfo=UTC) + timedelta(hours=5))) == expected


def test_the_last_moment_there_is_ends_a_schedule():
    assert Timing(every=86400.0, anchor=NOON).first_after(datetime.max.replace(tzinfo=UTC)) is None
