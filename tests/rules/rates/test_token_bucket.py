"""Counting tokens that come back evenly."""

from fractions import Fraction

from hypothesis import given

from django_ayework.doers import Allowed, Denied, TokenBucket
from django_ayework.rules.rates import microseconds
from tests.rules.rates.moments import after, limits, moments_of, pauses, windows


def test_a_bucket_of_five_a_second_gives_five_and_then_one_every_fifth_of_it():
    rate = TokenBucket(5, 1)

    assert [bool(rate.hit(after(0))) for _ in range(6)] == [True] * 5 + [False]
    assert rate.hit(after(0)) == Denied(0.2)
    assert rate.hit(after(200)) == Allowed()
    assert rate.hit(after(200)) == Denied(0.2)


def test_the_wait_is_rounded_up_to_the_next_microsecond():
    rate = TokenBucket(3, 1)
    for _ in range(3):
        rate.hit(after(0))

    assert rate.hit(after(0)) == Denied(0.333334)
    assert rate.hit(after(333.333)) == Denied(0.000001)
    assert rate.hit(after(333.334)) == Allowed()


def test_a_bucket_is_never_more_than_full():
    rate = TokenBucket(2, 1)
    rate.hit(after(0))

    assert [bool(rate.hit(after(3_600_000))) for _ in range(3)] == [True, True, False]


def test_tokens_that_are_there_can_be_had_though_the_clock_steps_back():
    rate = TokenBucket(2, 1)
    rate.hit(after(0))

    assert rate.hit(after(-3_600_000)) == Allowed()
    assert rate.hit(after(0)) == Denied(0.5)


@given(limits, windows, pauses)
def test_any_stretch_has_at_most_the_limit_and_what_came_back_meanwhile(limit, window, gaps):
    rate = TokenBucket(limit, window)
    hits = [microseconds(moment) for moment in moments_of(gaps) if rate.hit(moment)]

    for place, first in enumerate(hits):
        for count, last in enumerate(hits[place:], start=1):
            assert count <= limit + Fraction(limit * (last - first), rate.window)


@given(limits, windows, pauses)
def test_a_hit_is_refused_only_when_less_than_a_token_is_there(limit, window, gaps):
    rate, level, before = TokenBucket(limit, window), Fraction(limit), None
    for moment in moments_of(gaps):
        elapsed = microseconds(moment) - microseconds(before or moment)
        level, before = min(Fraction(limit), level + Fraction(limit * elapsed, rate.window)), moment
        allowed = level >= 1
        level -= allowed

        assert bool(rate.hit(moment)) == allowed
