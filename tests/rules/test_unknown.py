"""Works of a type that no worker knows keep since when in what they show as their error."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.texts import parked_error, parked_since
from tests.rules.moments import NOON, moments


@given(moments, moments)
def test_a_parked_work_remembers_since_when(since, now):
    assert parked_since(parked_error(since), now) == since


def test_parking_again_does_not_start_the_grace_anew():
    text = parked_error(NOON)
    for hour in range(1, 5):
        text = parked_error(parked_since(text, NOON + timedelta(hours=hour)))

    assert parked_since(text, NOON + timedelta(days=1)) == NOON


@given(st.text() | st.text().map(lambda text: parked_error(NOON)[:-3] + text))
def test_any_error_at_all_gives_a_moment_to_reckon_with(text):
    assert parked_since(text, NOON) - NOON <= timedelta(days=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: no luck",
        parked_error(NOON).removesuffix("+00:00"),  # a naive moment
        parked_error(NOON)[:-9] + "25:61:61",
    ],
)
def test_a_work_that_was_not_parked_starts_now(text):
    assert parked_since(text, NOON) == NOON


def test_people_read_what_is_the_matter():
    assert parked_error(NOON) == "no worker here knows this type, since 2026-01-01T12:00:00+00:00"
