"""Rate-limited doers on a clock that is moved by hand, and the doers within them."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest

from django_ayework.doers.rate_limited import RETRY_FLOOR, Limits, LocalLimiter
from django_ayework.rules.rates import FixedWindow
from tests.doers.kit import Holding, Inline
from tests.doers.rate_limiting import Broken


@pytest.mark.parametrize("window", [1, 0.06])
def test_tasks_beyond_the_limit_wait_for_the_next_window(kit, window):
    doer = kit.doer(limit=2, window=window)
    kit.submit(doer, *"abcde")
    assert kit.run() == ["a", "b"]
    assert len(kit.time.timers) == 1
    assert kit.time.timers[0].delay == window
    assert kit.run(0.9 * window) == []
    assert kit.run(0.1 * window) == ["c", "d"]
    assert kit.run(window) == ["e"]
    assert kit.time.timers[0].delay is None, "nothing waits"


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
    assert kit.time.timers[0].delay == 0


def test_hints_are_passed_on_to_the_inner_doer(kit):
    inner, moment = Inline(), kit.time.now()
    kit.submit(kit.doer(inner=inner), "a", fairness="acme", priority=7, created_at=moment)
    kit.run()
    assert inner.submitted == [("acme", 7, moment)]


def test_available_is_the_limit_less_what_waits(kit):
    doer = kit.doer(limit=3)
    assert doer.available() == 3
    kit.submit(doer, *"ab")
    assert doer.available() == 1
    kit.submit(doer, *"cde")
    assert doer.available() == 0
    kit.run()
    assert doer.available() == 1  # two of five still wait
    within = kit.doer(limit=9, inner=Holding(room=2))
    assert within.available() == 2
    kit.submit(within, "a")
    kit.run()
    assert within.available() == 1


@pytest.mark.parametrize(
    ("limit", "names", "rounds"),
    [
        (100, ("a1", "a2", "b1", "a3", "c1", "b2"), [["a1", "b1", "c1"], ["a2", "b2"], ["a3"]]),
        (2, ("a1", "a2", "b1", "c1"), [["a1", "b1"], ["a2", "c1"]]),
        (100, ("1", "2", "3"), [["1"], ["2"], ["3"]]),
    ],
    ids=["limit of labels", "both limits", "no label is a label"],
)
def test_a_label_beyond_its_limit_holds_up_no_other(kit, limit, names, rounds):
    doer = kit.doer(limit=limit, per_label=(1, 1))
    for name in names:
        kit.submit(doer, name, fairness=name[:-1] or None)
    assert [kit.run(seconds) for seconds in (0, 1, 1)[: len(rounds)]] == rounds


def test_a_label_does_not_pay_for_a_start_that_does_not_follow(kit):
    doer = kit.doer(limit=1, window=1, per_label=(1, 10))
    kit.submit(doer, "x", fairness="x")
    kit.submit(doer, "a", fairness="a")
    assert kit.run() == ["x"]
    assert kit.run(1) == ["a"]  # not ten seconds later


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


@pytest.mark.parametrize("as_text", [True, False])
def test_each_key_has_a_count_of_its_own_and_holds_up_no_other(kit, as_text):
    doer = kit.doer(limit=1, key=lambda hints: str(hints.priority) if as_text else hints.priority)
    kit.submit(doer, "a1", "a2")
    kit.submit(doer, "b1", priority=1)
    kit.submit(doer, "c1", priority=2)
    assert kit.run() == ["a1", "b1", "c1"]
    assert kit.run(1) == ["a2"]


def test_a_key_function_that_raises_is_reported_once_and_loses_no_task(kit, reported):
    doer = kit.doer(limit=1, key=lambda hints: 1 / 0)
    kit.submit(doer, "a", "b")
    assert kit.run(5) == ["a", "b"]
    assert reported == [("division by zero", "queue")] * 2


def test_the_timer_is_set_for_the_soonest_that_may_start(kit):
    doer = kit.doer(limit=100, per_label=(1, 10))
    kit.submit(doer, "a1", "a2", fairness="a")
    kit.run(4)
    kit.submit(doer, "b1", "b2", fairness="b")
    assert kit.time.timers[0].delay == 0, "a new task is considered at once"
    assert kit.run() == ["b1"]
    assert kit.time.timers[0].delay == 6


def test_the_timer_has_a_floor(kit):
    doer = kit.doer(limit=1, window=0.001)
    kit.submit(doer, *"abc")
    kit.run()
    assert kit.time.timers[0].delay == RETRY_FLOOR == 0.05


def test_a_full_inner_doer_is_given_nothing_more_until_it_has_room(kit):
    inner, rooms = Holding(room=1), []
    doer = kit.doer(limit=2, window=100, inner=inner)
    kit.submit(doer, *"abc")
    kit.run(10)
    assert len(inner.tasks) == 1
    doer.on_room(lambda: rooms.append(doer.available()))
    inner.run_one()
    assert rooms, "its room is passed on"
    assert kit.time.timers[0].delay == 0
    kit.run(10)
    assert len(inner.tasks) == 1
    assert kit.ran == ["a"]
    assert doer._load() == (1, 1), "a start counts only once it follows"


def test_an_inner_doer_that_tells_nothing_is_asked_every_so_often(kit):
    inner = Inline(room=0)
    doer = kit.doer(limit=10, inner=inner)
    kit.submit(doer, "a")
    kit.run()
    assert kit.time.timers[0].delay == RETRY_FLOOR
    inner.room = 1
    assert kit.run(RETRY_FLOOR) == ["a"]


def test_one_label_that_waits_for_long_does_not_keep_it_from_asking_for_room(kit):
    inner = Holding(room=2)
    doer = kit.doer(limit=10, per_label=(1, 3600), inner=inner)
    for name in ("a1", "a2", "b1", "c1"):
        kit.submit(doer, name, fairness=name[0])
    kit.run()
    assert len(inner.tasks) == 2
    assert kit.time.timers[0].delay == RETRY_FLOOR


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
