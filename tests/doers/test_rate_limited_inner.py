"""The doer within a rate-limited one: it may be full, tell of room, or refuse a task."""

from __future__ import annotations

from django_ayework.doers.rate_limited import RETRY_FLOOR
from tests.doers.kit import Holding, Inline


def test_a_full_inner_doer_is_given_nothing_more_until_it_tells_of_room(kit):
    inner = Holding(room=1)
    doer = kit.doer(limit=10, inner=inner)
    kit.submit(doer, *"abc")
    kit.run()
    assert len(inner.tasks) == 1
    inner.run_one()
    assert kit.time.timers[0].delay == 0
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
