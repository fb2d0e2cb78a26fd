"""Counting in aligned windows, the one before fading out."""

from fractions import Fraction

from hypothesis import given

from django_ayework.doers import Allowed, Denied, SlidingWindow
from django_ayework.rules.rates import microseconds
from tests.rules.rates.moments import after, limits, moments_of, pauses, windows


def test_a_full_window_fades_out_in_the_next():
    rate = SlidingWindow(10, 1)

    assert all(rate.hit(after(moment)) for moment in range(500, 510))
    assert not rate.hit(after(510))
    assert not rate.hit(after(1010))  # 10 · 0.99 + 0 + 1 > 10
    assert rate.hit(after(1990))


def test_of_ten_hits_at_once_two_count_and_the_next_is_allowed_half_a_window_on():
    rate = SlidingWindow(2, 1)

    assert [bool(rate.hit(after(0))) for _ in range(10)] == [True] * 2 + [False] * 8
    assert rate.hit(after(0)) == Denied(1.5)
    assert rate.hit(after(1499.999)) == Denied(0.000001)
    assert rate.hit(after(1500)) == Allowed()


def test_windows_are_aligned_to_their_length():
    rate = SlidingWindow(1, 60)

    assert rate.hit(after(59_000))
    assert rate.hit(after(60_000)) == Denied(60.0)  # a full window before lasts through this one
    assert rate.hit(after(120_000)) == Allowed()


def test_two_windows_on_nothing_is_left_of_the_hits():
    rate = SlidingWindow(3, 1)
    for _ in range(3):
        rate.hit(after(0))

    assert [bool(rate.hit(after(2000))) for _ in range(4)] == [True, True, True, False]


@given(limits, windows, pauses)
def test_a_hit_is_allowed_exactly_if_the_formula_says_so(limit, window, gaps):
    rate, counts = SlidingWindow(limit, window), {}
    length = rate.window
    for moment in moments_of(gaps):
        index, elapsed = divmod(microseconds(moment), length)
        faded = counts.get(index - 1, 0) * Fraction(length - elapsed, length)
        allowed = faded + counts.get(index, 0) + 1 <= limit
        counts[index] = counts.get(index, 0) + allowed

        assert bool(rate.hit(moment)) == allowed
