"""Counting in windows that begin with a hit."""

from datetime import timedelta

from hypothesis import given

from django_ayework.doers import Allowed, Denied, FixedWindow
from tests.rules.rates.moments import after, limits, moments_of, pauses, windows


def test_three_in_a_second_and_no_fourth():
    rate = FixedWindow(3, 1)

    assert [bool(rate.hit(after(moment))) for moment in (0, 400, 999, 999.9)] == [True, True, True, False]
    assert rate.hit(after(1001)) == Allowed()


def test_the_window_begins_with_the_first_hit_and_is_over_when_its_length_has_passed():
    rate = FixedWindow(1, 1)
    rate.hit(after(700))

    assert rate.hit(after(1000)) == Denied(0.7)
    assert rate.hit(after(1699.999)) == Denied(0.000001)
    assert rate.hit(after(1700)) == Allowed()
    assert rate.hit(after(1700)) == Denied(1.0)


def test_however_often_it_is_hammered_the_window_ends_when_it_ends():
    rate = FixedWindow(2, 1)

    assert [bool(rate.hit(after(0))) for _ in range(10)] == [True] * 2 + [False] * 8
    assert rate.hit(after(1000)) == Allowed()


@given(limits, windows, pauses)
def test_no_window_has_more_hits_than_the_limit(limit, window, gaps):
    rate, openings = FixedWindow(limit, window), []
    for moment in moments_of(gaps):
        if rate.hit(moment):
            if not openings or moment >= openings[-1][0] + window:
                openings.append((moment, 0))
            start, count = openings[-1]
            openings[-1] = (start, count + 1)

    assert all(count <= limit for _, count in openings)


@given(limits, windows, pauses)
def test_a_hit_is_refused_only_when_the_window_is_full(limit, window, gaps):
    rate, start, count = FixedWindow(limit, window), None, 0
    for moment in moments_of(gaps):
        if start is None or moment >= start + window:
            start, count = moment, 0
        allowed = count < limit
        count += allowed

        assert bool(rate.hit(moment)) == allowed


@given(limits, windows, pauses)
def test_any_stretch_of_one_window_has_at_most_twice_the_limit(limit, window, gaps):
    rate = FixedWindow(limit, window)
    hits = [moment for moment in moments_of(gaps) if rate.hit(moment)]

    for first in hits:
        assert sum(timedelta() <= moment - first < window for moment in hits) <= 2 * limit
