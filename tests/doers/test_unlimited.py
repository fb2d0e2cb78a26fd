"""The doer without limits."""

from __future__ import annotations

from functools import partial

import pytest

from django_ayework import doers


def test_it_starts_every_task_at_once(stage):
    doer = doers.unlimited()
    names = [str(number) for number in range(20)]
    for name in names:
        doer.submit(stage.task(name))

    assert sorted(stage.wait_for(20)) == sorted(names)
    assert stage.peak == 20


def test_it_always_has_room_for_as_many(stage):
    doer = doers.unlimited()
    assert doer.available() == 256
    doer.submit(stage.task("a"))
    assert doer.available() == 256
    assert doers.unlimited(capacity=3).available() == 3


def test_drained_waits_for_every_task(stage):
    doer, log = doers.unlimited(), []

    def task(name: str) -> None:
        stage.task(name)()
        log.append(name)

    for name in "abc":
        doer.submit(partial(task, name))
    stage.wait_for(3)
    stage.end("a", "b", "c")
    doer.drained()

    assert sorted(log) == ["a", "b", "c"]


def test_drained_returns_at_once_when_nothing_is_held():
    doers.unlimited().drained()


@pytest.mark.parametrize("capacity", [0, -1, 2.5, True, "8", None])
def test_a_capacity_is_a_whole_number_above_zero(capacity):
    with pytest.raises(ValueError, match="expected capacity to be a whole number, 1 or more, got: "):
        doers.unlimited(capacity)
