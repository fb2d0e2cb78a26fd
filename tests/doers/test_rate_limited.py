"""The doer that starts only so many tasks in a while, on a clock that is moved by hand."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from django_ayework.doers.limiter import FleetLimiter, LocalLimiter
from django_ayework.doers.limits import Limits
from django_ayework.doers.rate_limited import LONGEST_PAUSE, RETRY_FLOOR, RateLimited
from django_ayework.ports.kv.local import LocalStore
from django_ayework.rules.rates import Denied, FixedWindow, TokenBucket
from tests.doers.kit import Holding, Inline, Time


class Kit:
    """Builds doers that go by a clock, and notes what they run."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.ran: list[str] = []

    def doer(
        self, limit=1, window=1.0, kind=FixedWindow, inner=None, key=None, per_label=None
    ) -> RateLimited:
        overall = LocalLimiter(partial(kind, limit, window), self.time.now)
        labels = LocalLimiter(partial(kind, *per_label), self.time.now) if per_label else None
        return self.of(Limits(overall, labels, key), limit, inner)

    def of(self, limits: Limits, limit: int = 100, inner=None) -> RateLimited:
        return RateLimited(limit, limits, inner or Inline(), self.time.alarm)

    def submit(self, doer, *names: str, **hints: Any) -> None:
        for name in names:
            doer.submit(partial(self.ran.append, name), **hints)

    def run(self, seconds: float = 0.0) -> list[str]:
        """What runs within this time."""
        before = len(self.ran)
        self.time.advance(seconds)
        return self.ran[before:]


@pytest.fixture
def kit(time: Time) -> Kit:
    return Kit(time)


def test_while_the_clock_stands_still_the_limit_is_all_that_runs(kit):
    doer = kit.doer(limit=2)
    kit.submit(doer, *"abcde")

    assert kit.run() == ["a", "b"]
    assert kit.run(0.9) == []
    assert kit.run(0.1) == ["c", "d"]
    assert kit.run(1) == ["e"]


def test_the_second_is_released_when_the_window_ends(kit):
    doer = kit.doer(limit=1, window=0.06)
    kit.submit(doer, "a", "b")

    assert kit.run() == ["a"]
    assert kit.time.alarms[0].delay == 0.06
    assert kit.run(0.06) == ["b"]


def test_tokens_come_back_one_by_one(kit):
    doer = kit.doer(limit=3, window=1, kind=TokenBucket)
    kit.submit(doer, *"abcdef")

    assert kit.run() == ["a", "b", "c"]
    assert [kit.run(1 / 3 + 0.000001) for _ in range(3)] == [["d"], ["e"], ["f"]]


def test_the_oldest_is_first_however_late_it_came(kit):
    doer = kit.doer(limit=1)
    kit.submit(doer, "first")
    kit.run()
    for age in (1, 3, 2):
        kit.submit(doer, str(age), created_at=kit.time.now() - timedelta(seconds=age))

    assert kit.run(3) == ["3", "2", "1"]


def test_submitting_counts_nothing_and_starts_nothing_in_the_callers_thread(kit):
    doer = kit.of(Limits(Broken(99), None, None))
    kit.submit(doer, "a")

    assert kit.ran == []
    assert kit.time.alarms[0].delay == 0


def test_hints_are_passed_on_to_the_inner_doer(kit):
    inner, moment = Inline(), kit.time.now()
    kit.submit(kit.doer(inner=inner), "a", fairness="acme", priority=7, created_at=moment)
    kit.run()

    assert inner.submitted == [("acme", 7, moment)]


# How much is welcome


def test_it_welcomes_the_limit_less_what_waits(kit):
    doer = kit.doer(limit=3)
    assert doer.available() == 3
    kit.submit(doer, *"ab")
    assert doer.available() == 1
    kit.submit(doer, *"cde")
    assert doer.available() == 0
    kit.run()
    assert doer.available() == 1  # two of five still wait


def test_it_welcomes_no_more_than_the_inner_doer(kit):
    inner = Holding(room=2)
    doer = kit.doer(limit=9, inner=inner)
    assert doer.available() == 2
    kit.submit(doer, "a")
    kit.run()
    assert doer.available() == 1


# Labels


def test_a_label_beyond_its_limit_holds_up_no_other(kit):
    doer = kit.doer(limit=100, per_label=(1, 1))
    for name in ("a1", "a2", "b1", "a3", "c1", "b2"):
        kit.submit(doer, name, fairness=name[0])

    assert kit.run() == ["a1", "b1", "c1"]
    assert kit.run(1) == ["a2", "b2"]
    assert kit.run(1) == ["a3"]


def test_labels_together_stay_within_the_limit(kit):
    doer = kit.doer(limit=2, per_label=(1, 1))
    for name in ("a1", "a2", "b1", "c1"):
        kit.submit(doer, name, fairness=name[0])

    assert kit.run() == ["a1", "b1"]
    assert kit.run(1) == ["a2", "c1"]


def test_a_label_does_not_pay_for_a_start_that_does_not_follow(kit):
    doer = kit.doer(limit=1, window=1, per_label=(1, 10))
    kit.submit(doer, "x", fairness="x")
    kit.submit(doer, "a", fairness="a")

    assert kit.run() == ["x"]
    assert kit.run(1) == ["a"]  # not ten seconds later


def test_it_comes_back_for_the_soonest_that_may_start(kit):
    doer = kit.doer(limit=100, per_label=(1, 10))
    kit.submit(doer, "a1", "a2", fairness="a")
    kit.run(4)
    kit.submit(doer, "b1", "b2", fairness="b")
    kit.run()

    assert kit.time.alarms[0].delay == 6


def test_a_label_that_is_beyond_its_limit_is_asked_about_once_in_a_round(kit):
    asked = []

    class Asked(LocalLimiter):
        def hit(self, name):
            asked.append(name)
            return super().hit(name)

    overall, labels = (Asked(partial(FixedWindow, limit, 10), kit.time.now) for limit in (100, 1))
    doer = kit.of(Limits(overall, labels, None))
    kit.submit(doer, *"abcdefgh", fairness="acme")
    kit.run()

    assert [name[0] for name in asked] == ["label", "key", "label"]


def test_tasks_without_a_label_count_as_one(kit):
    doer = kit.doer(limit=100, per_label=(1, 1))
    kit.submit(doer, "a", "b")
    kit.submit(doer, "c", fairness=None)

    assert [kit.run(), kit.run(1), kit.run(1)] == [["a"], ["b"], ["c"]]


# Keys


def test_each_key_has_a_count_of_its_own_and_holds_up_no_other(kit):
    doer = kit.doer(limit=1, key=lambda hints: f"{hints.fairness}-{hints.priority}")
    for name in ("a1", "a2", "b1"):
        kit.submit(doer, name, fairness=name[0])
    kit.submit(doer, "a3", fairness="a", priority=1)

    assert kit.run() == ["a1", "b1", "a3"]
    assert kit.run(1) == ["a2"]


def test_a_key_that_is_no_text_is_made_one(kit):
    doer = kit.doer(limit=1, key=lambda hints: hints.priority)
    kit.submit(doer, "a", "b")
    kit.submit(doer, "c", priority=1)

    assert kit.run() == ["a", "c"]


def test_a_key_function_that_raises_is_reported_once_and_loses_no_task(kit, reported):
    doer = kit.doer(limit=1, key=lambda hints: 1 / 0)
    kit.submit(doer, "a", "b")

    assert kit.run(5) == ["a", "b"]
    assert reported == [("division by zero", "queue")] * 2


# The alarm


def test_there_is_one_alarm_and_it_is_set_only_while_something_waits(kit):
    doer = kit.doer(limit=1)
    kit.submit(doer, *"abc")
    kit.run()
    assert len(kit.time.alarms) == 1
    assert kit.time.alarms[0].delay == 1
    kit.run(2)
    assert kit.ran == ["a", "b", "c"]
    assert kit.time.alarms[0].delay is None


def test_it_never_looks_more_often_than_the_floor(kit):
    doer = kit.doer(limit=1, window=0.001)
    kit.submit(doer, *"abc")
    kit.run()

    assert kit.time.alarms[0].delay == RETRY_FLOOR == 0.05


def test_a_new_task_is_looked_at_once_though_others_wait_for_long(kit):
    doer = kit.doer(limit=100, per_label=(1, 3600))
    kit.submit(doer, "a1", "a2", fairness="a")
    kit.run()
    kit.submit(doer, "b1", fairness="b")

    assert kit.time.alarms[0].delay == 0
    assert kit.run() == ["b1"]


# The inner doer


def test_a_full_inner_doer_is_given_nothing_more_until_it_tells_of_room(kit):
    inner = Holding(room=1)
    doer = kit.doer(limit=10, inner=inner)
    kit.submit(doer, *"abc")
    kit.run()
    assert len(inner.tasks) == 1
    inner.run_one()
    assert kit.time.alarms[0].delay == 0
    kit.run()
    assert len(inner.tasks) == 1
    assert kit.ran == ["a"]


def test_a_start_is_not_counted_while_the_inner_doer_is_full(kit):
    inner = Holding(room=1)
    doer = kit.doer(limit=2, window=100, inner=inner)
    kit.submit(doer, *"abc")
    kit.run(10)
    inner.run_one()
    kit.run(10)

    assert len(inner.tasks) == 1
    assert doer._load() == (1, 1)


def test_an_inner_doer_that_tells_nothing_is_asked_every_so_often(kit):
    inner = Inline(room=0)
    doer = kit.doer(limit=10, inner=inner)
    kit.submit(doer, "a")
    kit.run()
    assert kit.time.alarms[0].delay == RETRY_FLOOR
    inner.room = 1
    assert kit.run(RETRY_FLOOR) == ["a"]


def test_one_label_that_waits_for_long_does_not_keep_it_from_asking_for_room(kit):
    inner = Holding(room=2)
    doer = kit.doer(limit=10, per_label=(1, 3600), inner=inner)
    for name in ("a1", "a2", "b1", "c1"):
        kit.submit(doer, name, fairness=name[0])
    kit.run()

    assert len(inner.tasks) == 2
    assert kit.time.alarms[0].delay == RETRY_FLOOR


def test_room_of_the_inner_doer_is_passed_on_to_whoever_listens(kit):
    inner, told = Holding(room=1), []
    doer = kit.doer(limit=10, inner=inner)
    kit.submit(doer, "a")
    kit.run()
    doer.on_room(lambda: told.append(doer.available()))
    inner.run_one()

    assert told == [1]


def test_drained_waits_for_the_inner_doer_too(kit):
    inner, waited = Inline(), []
    inner.drained = lambda: waited.append(list(kit.ran))
    doer = kit.doer(inner=inner)
    kit.submit(doer, "a")
    kit.run()
    doer.drained()

    assert waited == [["a"]]


def test_an_inner_doer_that_refuses_a_task_leaves_it_waiting(kit, reported):
    class Refusing(Inline):
        def submit(self, task, *hints) -> None:
            if not reported:
                raise RuntimeError("no")
            super().submit(task, *hints)

    doer = kit.doer(limit=10, inner=Refusing())
    kit.submit(doer, *"ab")
    kit.run()

    assert reported == [("no", "queue")]
    assert doer._load() == (0, 2)
    assert kit.run(RETRY_FLOOR) == ["a", "b"]


# Limits that cannot be read


class Broken:
    """A limiter that raises so many times, and then allows everything."""

    def __init__(self, times: int) -> None:
        self.times = times

    def hit(self, name):
        if self.times:
            self.times -= 1
            raise ConnectionError("no store")
        return FixedWindow(1, 1).hit(Time().now())

    peek = hit


def test_an_error_of_the_store_is_reported_and_costs_the_floor_but_no_task(kit, reported):
    doer = kit.of(Limits(Broken(1), None, None))
    kit.submit(doer, *"ab")
    assert kit.run() == []
    assert reported == [("no store", "queue")]
    assert kit.time.alarms[0].delay == RETRY_FLOOR

    assert kit.run(RETRY_FLOOR) == ["a", "b"]


def test_while_errors_go_on_it_asks_less_and_less_often(kit, reported):
    doer = kit.of(Limits(Broken(20), None, None))
    kit.submit(doer, "a")
    delays = []
    for _ in range(10):
        kit.run(kit.time.alarms[0].delay)
        delays.append(kit.time.alarms[0].delay)

    assert delays == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])
    assert max(delays) == LONGEST_PAUSE


def test_after_a_success_it_begins_with_the_floor_again(kit, reported):
    limiter = Broken(3)
    doer = kit.of(Limits(limiter, None, None))
    kit.submit(doer, "a")
    kit.run(10)
    assert kit.ran == ["a"]
    limiter.times = 1
    kit.submit(doer, "b")
    kit.run()

    assert kit.time.alarms[0].delay == RETRY_FLOOR


def test_a_label_whose_count_cannot_be_read_is_no_license_to_start(kit, reported):
    overall = LocalLimiter(partial(FixedWindow, 10, 1), kit.time.now)
    doer = kit.of(Limits(overall, Broken(1), None))
    kit.submit(doer, "a")

    assert kit.run() == []
    assert kit.run(RETRY_FLOOR) == ["a"]


def test_a_count_that_others_got_ahead_of_is_tried_again_after_the_floor(kit):
    class Contended:
        def hit(self, name):
            return Denied(0.0)

        peek = hit

    doer = kit.of(Limits(Contended(), None, None))
    kit.submit(doer, "a")
    kit.run()

    assert kit.time.alarms[0].delay == RETRY_FLOOR


# The fleet


@pytest.fixture
def fleet(kit, settings):
    """Doers of several processes, which share a Store."""
    settings.AYEWORK = {"STORE": LocalStore()}

    def doer(limit, window, key=None, per_label=None) -> RateLimited:
        overall = FleetLimiter(partial(FixedWindow, limit, window))
        labels = FleetLimiter(partial(FixedWindow, *per_label)) if per_label else None
        return kit.of(Limits(overall, labels, key), limit)

    return doer


def test_doers_that_share_a_limit_stay_within_it_together(kit, fleet):
    one, other = fleet(3, 3600), fleet(3, 3600)
    kit.submit(one, *"ab")
    kit.submit(other, *"cde")

    assert sorted(kit.run()) == ["a", "b", "c"]


def test_doers_with_keys_of_their_own_share_nothing(kit, fleet):
    for key in ("mail", "sms", None):
        kit.submit(fleet(1, 3600, key, per_label=(1, 3600)), f"{key}", fairness="acme")

    assert sorted(kit.run()) == ["None", "mail", "sms"]


def test_labels_are_counted_for_the_fleet(kit, fleet):
    one, other = fleet(9, 3600, per_label=(1, 3600)), fleet(9, 3600, per_label=(1, 3600))
    kit.submit(one, "a1", fairness="a")
    kit.submit(other, "a2", fairness="a")
    kit.submit(other, "b1", fairness="b")

    assert kit.run() == ["a1", "b1"]
