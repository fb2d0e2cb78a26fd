"""``ON_BACKLOG`` is called when tasks have waited for too long."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from django_ayework import doers
from django_ayework.doers import BacklogInfo
from django_ayework.doers.base import BacklogWatch
from django_ayework.doers.bounded import bounded, by_age
from django_ayework.doers.rate_limited import Limits, LocalLimiter, RateLimited
from django_ayework.rules.rates import FixedWindow
from tests.doers.kit import PATIENCE, Inline, Time


class Heard(list[BacklogInfo]):
    """The calls of ``ON_BACKLOG``."""

    def settle(self, settings: Any, **keys: Any) -> None:
        settings.AYEWORK = {"ON_BACKLOG": self.append, **keys}


@pytest.fixture
def heard(settings: Any) -> Heard:
    heard = Heard()
    heard.settle(settings, BACKLOG_AFTER=10)
    return heard


@pytest.fixture
def watched(time: Time):
    """A watch over a load that is set by hand."""
    load = [0, 0]
    watch = BacklogWatch(lambda: (load[0], load[1]), time.timer, time.seconds)

    def hold(active: int, queued: int, seconds: float = 0.0) -> None:
        load[:] = active, queued
        watch.update()
        time.advance(seconds)

    return hold


def test_the_hook_is_called_once_after_tasks_have_waited_long_enough(watched, heard):
    watched(2, 3, seconds=9.9)
    assert heard == []
    watched(2, 5, seconds=0.1)
    assert heard == [BacklogInfo(active=2, queued=5, behind_for=10)]
    watched(2, 5, seconds=1000)
    assert len(heard) == 1


def test_a_moment_without_waiting_tasks_begins_a_new_episode(watched, heard, time, settings):
    watched(2, 1, seconds=9)
    watched(2, 0)
    assert time.timers[0].due_at is None
    watched(2, 1, seconds=9)
    assert heard == []
    watched(2, 1, seconds=6)
    watched(2, 0, seconds=1)
    watched(2, 1, seconds=15)
    assert [info.behind_for for info in heard] == [10, 10]
    watched(2, 0)
    heard.clear()
    heard.settle(settings, BACKLOG_AFTER=10, BACKLOG_EVERY=4)
    watched(1, 1, seconds=19)
    assert [info.behind_for for info in heard] == [10, 14, 18]


def test_a_backlog_that_is_gone_when_the_timer_rings_is_not_reported(time, heard):
    load = [1, 1]
    watch = BacklogWatch(lambda: (load[0], load[1]), time.timer, time.seconds)
    watch.update()
    load[:] = 1, 0  # without an update
    time.advance(10)
    assert heard == []


@pytest.mark.parametrize("keys", [{}, {"BACKLOG_AFTER": 5}, {"BACKLOG_AFTER": -1}, {"ON_BACKLOG": print}])
def test_nothing_is_set_up_without_both_a_hook_and_a_time_that_can_be_used(watched, settings, time, keys):
    settings.AYEWORK = keys
    watched(1, 1, seconds=100)
    assert time.timers[0].due_at is None


def test_a_hook_that_raises_is_reported_and_disturbs_nothing(watched, settings):
    reported = []
    settings.AYEWORK = {
        "ON_BACKLOG": lambda info: 1 / 0,
        "ON_ERROR": lambda error, phase: reported.append(phase),
        "BACKLOG_AFTER": 1,
        "BACKLOG_EVERY": 1,
    }
    watched(1, 1, seconds=3)
    assert reported == ["hook"] * 3


def test_a_bounded_doer_reports_tasks_that_wait_for_a_slot(stage, time, heard):
    doer = bounded(by_age, 2, None, partial(BacklogWatch, timers=time.timer, seconds=time.seconds))
    for name in "abcde":
        doer.submit(stage.task(name))
    time.advance(10)
    assert heard == [BacklogInfo(active=2, queued=3, behind_for=10)]
    stage.end(*"abcde")
    doer.drained()
    time.advance(1000)
    assert len(heard) == 1


def test_a_rate_limited_doer_reports_tasks_that_wait_for_the_limit(time, heard):
    limits = Limits(LocalLimiter(partial(FixedWindow, 1, 100), time.now), None, None)
    watch = partial(BacklogWatch, timers=time.timer, seconds=time.seconds)
    doer = RateLimited(1, limits, Inline(), time.timer, watch)
    for _ in range(3):
        doer.submit(lambda: None)
    time.advance(99)
    assert heard == [BacklogInfo(active=0, queued=2, behind_for=10)]


def test_the_hook_is_called_in_real_threads(stage, settings):
    heard, called = [], threading.Event()
    settings.AYEWORK = {"ON_BACKLOG": lambda info: heard.append(info) or called.set(), "BACKLOG_AFTER": 0.01}
    doer = doers.balanced(1)
    doer.submit(stage.task("a"))
    doer.submit(stage.task("b"))
    assert called.wait(PATIENCE)
    assert (heard[0].active, heard[0].queued) == (1, 1)
    assert heard[0].behind_for >= 0.01
