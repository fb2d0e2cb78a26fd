"""``time_travel``: the engine's clock moves at once, cumulatively, and back after each test."""

from __future__ import annotations

import unittest
from datetime import UTC, datetime, timedelta
from typing import Any

import django.test
import pytest

from django_ayework import enqueue
from django_ayework.models import Work
from django_ayework.testing import now, time_travel
from tests.app.works import add

HOUR = timedelta(hours=1)


def ahead() -> float:
    """How many seconds the engine is ahead of this host, to the nearest ten."""
    return round((now() - datetime.now(UTC)).total_seconds(), -1)


def test_it_moves_at_once_and_adds_up() -> None:
    time_travel(3600)
    assert ahead() == 3600
    time_travel(HOUR)
    assert ahead() == 7200
    time_travel(-HOUR)
    assert ahead() == 3600


def test_the_test_before_left_no_trace() -> None:
    assert ahead() == 0


def test_a_block_is_undone_at_its_end() -> None:
    time_travel(HOUR)
    with time_travel(HOUR):
        assert ahead() == 7200
        with time_travel(HOUR):
            assert ahead() == 10_800
        assert ahead() == 7200
    assert ahead() == 3600


def test_a_block_is_undone_by_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), time_travel(HOUR):
        _ = 1 / 0
    assert ahead() == 0


@pytest.mark.django_db
def test_what_is_due_follows_the_clock(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2), delay=3600)
    with time_travel(3599):
        assert drain().ran == 0
    with time_travel(3601):
        assert drain().ran == 1
        state = handle.state()
        assert state is not None and state.ended_at is not None
        assert abs((state.ended_at - now()).total_seconds()) < 5


@pytest.mark.django_db
def test_works_are_queued_in_the_present_of_the_clock() -> None:
    time_travel(timedelta(days=-400))
    handle = enqueue(add(a=1, b=2))
    assert abs((Work.objects.get(id=handle.id).queued_at - now()).total_seconds()) < 5
    assert ahead() == -400 * 86_400


@pytest.mark.parametrize("base", [unittest.TestCase, django.test.SimpleTestCase])
def test_a_test_case_undoes_it_by_itself(base: type[unittest.TestCase]) -> None:
    seen: list[float] = []

    class Travels(base):  # type: ignore[misc, valid-type]
        def test_one(self) -> None:
            time_travel(HOUR)
            self.helper()
            seen.append(ahead())

        def test_two(self) -> None:
            seen.append(ahead())

        def helper(self) -> None:
            time_travel(HOUR)

        def runTest(self) -> None: ...

    result = unittest.TestResult()
    unittest.TestSuite([Travels("test_one"), Travels("test_two")]).run(result)
    assert result.wasSuccessful(), result.errors
    assert seen == [7200, 0]
    assert ahead() == 0
