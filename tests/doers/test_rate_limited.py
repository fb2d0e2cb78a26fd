"""The doer that starts only so many tasks in a while, on a clock that is moved by hand."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from django_ayework.doers.rate_limited import RETRY_FLOOR, Limits, LocalLimiter
from django_ayework.rules.rates import FixedWindow, TokenBucket
from tests.doers.kit import Holding, Inline
from tests.doers.rate_limiting import Broken


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
    assert kit.time.timers[0].delay == 0.06
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
    assert kit.time.timers[0].delay == 0


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

    assert kit.time.timers[0].delay == 6


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


# The timer


def test_there_is_one_timer_and_it_is_set_only_while_something_waits(kit):
    doer = kit.doer(limit=1)
    kit.submit(doer, *"abc")
    kit.run()
    assert len(kit.time.timers) == 1
    assert kit.time.timers[0].delay == 1
    kit.run(2)
    assert kit.ran == ["a", "b", "c"]
    assert kit.time.timers[0].delay is None


def test_it_never_looks_more_often_than_the_floor(kit):
    doer = kit.doer(limit=1, window=0.001)
    kit.submit(doer, *"abc")
    kit.run()

    assert kit.time.timers[0].delay == RETRY_FLOOR == 0.05


def test_a_new_task_is_looked_at_once_though_others_wait_for_long(kit):
    doer = kit.doer(limit=100, per_label=(1, 3600))
    kit.submit(doer, "a1", "a2", fairness="a")
    kit.run()
    kit.submit(doer, "b1", fairness="b")

    assert kit.time.timers[0].delay == 0
    assert kit.run() == ["b1"]
