"""The bound on a work's whole life."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.retry import has_expired, resolve_deadline
from tests.rules.moments import NOON, moments

HAIR = timedelta(microseconds=1)


@given(moments, st.none() | st.floats(0, 1e9), moments)
def test_an_explicit_deadline_wins(now, expires, deadline):
    assert resolve_deadline(now, expires, deadline) == deadline


@given(moments, st.floats(0, 1e9))
def test_expires_counts_from_now(now, expires):
    assert resolve_deadline(now, expires, None) == now + timedelta(seconds=expires)


def test_a_life_of_no_time_at_all_is_a_deadline_too():
    assert resolve_deadline(NOON, 0.0, None) == NOON


def test_nothing_given_is_no_deadline():
    assert resolve_deadline(NOON, None, None) is None


@given(moments)
def test_the_deadline_itself_is_in_time_and_a_hair_later_is_not(deadline):
    assert not has_expired(deadline, deadline - HAIR)
    assert not has_expired(deadline, deadline)
    assert has_expired(deadline, deadline + HAIR)


@given(moments)
def test_without_a_deadline_nothing_expires(moment):
    assert not has_expired(None, moment)


@given(moments, moments)
def test_moments_are_compared_across_time_zones(deadline, moment):
    assert has_expired(deadline, moment) is (moment.timestamp() > deadline.timestamp())
