"""``ON_BACKLOG`` is called when tasks have waited for too long."""

import threading

import pytest

from django_ayework import doers
from django_ayework.doers import BacklogInfo
from django_ayework.doers.base import BacklogWatch
from tests.doers.kit import PATIENCE


@pytest.fixture
def heard(settings):
    """The calls of ``ON_BACKLOG``."""
    heard: list[BacklogInfo] = []
    settings.AYEWORK = {"ON_BACKLOG": heard.append, "BACKLOG_AFTER": 10}
    return heard


@pytest.fixture
def watched(time, watches_by_time):
    """Sets the load of a watch by hand; a load that is not told comes without an update."""
    load = [0, 0]
    watch = BacklogWatch(lambda: (load[0], load[1]))

    def hold(active, queued, seconds=0.0, is_told=True):
        load[:] = active, queued
        watch.update() if is_told else None
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
    settings.AYEWORK = {**settings.AYEWORK, "BACKLOG_EVERY": 4}
    watched(1, 1, seconds=19)
    assert [info.behind_for for info in heard] == [10, 14, 18]


def test_a_backlog_that_is_gone_when_the_timer_rings_is_not_reported(watched, heard):
    watched(1, 1)
    watched(1, 0, seconds=10, is_told=False)
    assert heard == []


@pytest.mark.parametrize("keys", [{}, {"BACKLOG_AFTER": 5}, {"BACKLOG_AFTER": -1}, {"ON_BACKLOG": print}])
def test_nothing_is_set_up_without_both_a_hook_and_a_time_that_can_be_used(watched, settings, time, keys):
    settings.AYEWORK = keys
    watched(1, 1, seconds=100)
    assert time.timers[0].due_at is None


def test_a_hook_that_raises_is_reported_and_disturbs_nothing(watched, settings):
    reported = []
    keys = {"ON_BACKLOG": lambda info: 1 / 0, "ON_ERROR": lambda error, phase: reported.append(phase)}
    settings.AYEWORK = {**keys, "BACKLOG_AFTER": 1, "BACKLOG_EVERY": 1}
    watched(1, 1, seconds=3)
    assert reported == ["hook"] * 3


def test_a_bounded_doer_reports_tasks_that_wait_for_a_slot(stage, time, watches_by_time, heard):
    doer = doers.age(2)
    for name in "abcde":
        doer.submit(stage.task(name))
    time.advance(10)
    assert heard == [BacklogInfo(active=2, queued=3, behind_for=10)]
    stage.end(*"abcde")
    doer.drained()
    time.advance(1000)
    assert len(heard) == 1


def test_a_rate_limited_doer_reports_tasks_that_wait_for_the_limit(kit, time, watches_by_time, heard):
    doer = kit.doer(limit=1, window=100)
    for _ in range(3):
        doer.submit(lambda: None)
    time.advance(99)
    assert heard == [BacklogInfo(active=0, queued=2, behind_for=10)]


def test_the_hook_is_called_in_real_threads(stage, settings):
    heard, called = [], threading.Event()
    settings.AYEWORK = {"ON_BACKLOG": lambda info: heard.append(info) or called.set(), "BACKLOG_AFTER": 0.01}
    doer = doers.balanced(1)
    for name in "ab":
        doer.submit(stage.task(name))
    assert called.wait(PATIENCE)
    assert (heard[0].active, heard[0].queued) == (1, 1)
    assert heard[0].behind_for >= 0.01
