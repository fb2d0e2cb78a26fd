"""What holds for every doer that comes with the package."""

import sys
import threading
from collections import Counter
from datetime import datetime
from functools import partial

import pytest
from django.db import connection

from django_ayework import doers
from django_ayework.doers import base
from tests.doers.kit import PATIENCE

MAKERS = {
    "unlimited": doers.unlimited,
    "balanced": partial(doers.balanced, 2),
    "priority": partial(doers.priority, 2),
    "age": partial(doers.age, 2),
    "rate_limited": partial(doers.rate_limited, 10_000, 60, inner=None),
    "rate_limited_and_balanced": lambda: doers.rate_limited(10_000, 60, inner=doers.balanced(2)),
}

pytestmark = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def test_tasks_run_in_a_thread_of_the_doer_and_submitting_returns_at_once(make, stage):
    doer, threads = make(), []
    doer.submit(lambda: threads.append(threading.current_thread()) or stage.task("a")())
    stage.wait_for(1)  # it runs, and we are here
    stage.end("a")
    doer.drained()
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon


def test_what_a_task_raises_is_swallowed_and_reported(make, reported):
    doer, ran = make(), []

    def fail(error: BaseException) -> None:
        raise error

    for error in (ValueError("broken"), SystemExit("leave"), KeyboardInterrupt("stop")):
        doer.submit(partial(fail, error))
    for number in range(10):
        doer.submit(partial(ran.append, number))
    doer.drained()
    assert sorted(ran) == list(range(10))
    assert sorted(reported) == [("broken", "queue"), ("leave", "queue"), ("stop", "queue")]


@pytest.mark.parametrize("broken", ["settings", "hook", "listener"])
def test_unusable_settings_hooks_and_listeners_that_raise_disturb_nothing(make, settings, broken):
    keys = {"settings": {"LEASE": -1}, "hook": {"ON_ERROR": lambda error, phase: 1 / 0}}
    settings.AYEWORK = keys.get(broken, {})
    doer, ran = make(), []
    if broken == "listener":
        doer.on_room(lambda: 1 / 0)

    def first() -> None:
        doer.submit(lambda: ran.append("second"))
        ran.append("first")

    doer.submit(lambda: 1 / 0)
    for _ in range(2):
        doer.submit(first)
        doer.drained()
    assert sorted(ran) == ["first", "first", "second", "second"]


def test_listeners_are_called_when_there_is_room(make):
    doer, seen, changed = make(), [], threading.Condition()
    assert isinstance(doer, doers.Doer)
    assert isinstance(doer, doers.TellsRoom)
    full = doer.available()

    def listener() -> None:
        with changed:
            seen.append(doer.available())
            changed.notify_all()

    forget = doer.on_room(listener)
    doer.submit(lambda: None)
    with changed:
        assert changed.wait_for(lambda: full in seen, PATIENCE), seen
    forget()
    assert doer._listeners == ()


@pytest.mark.parametrize(
    ("given", "kind", "matter"),
    [
        ({"created_at": datetime(2026, 1, 1)}, ValueError, "created_at to be an aware datetime"),
        ({"created_at": 5}, TypeError, "created_at to be an aware datetime, got: 5"),
        ({"priority": "high"}, TypeError, "priority to be a whole number, got: 'high'"),
        ({"priority": 1.5}, TypeError, "priority to be a whole number, got: 1.5"),
        ({"task": 5}, TypeError, "task to be a function without arguments, got: 5"),
    ],
)
def test_unusable_tasks_and_hints_are_refused_and_not_held(make, given, kind, matter):
    doer = make()
    with pytest.raises(kind, match=f"expected {matter}"):
        doer.submit(**{"task": lambda: None} | given)
    doer.drained()


@pytest.mark.django_db(transaction=True)
def test_a_task_leaves_no_connection_behind(make):
    doer, seen = make(), []
    for _ in range(6):
        doer.submit(lambda: seen.append(connection.connection is None) or connection.ensure_connection())
        doer.drained()
    assert seen == [True] * 6


def test_many_submit_at_once_and_every_task_runs_once(make, monkeypatch):
    """Threads end as soon as they are idle, so that ending and beginning meet all the time."""
    monkeypatch.setattr(base, "LINGER", 0.0)
    doer, lock, ran, running, peaks = make(), threading.Lock(), Counter(), Counter(), [0]
    rivals, each = 4, 40

    def task(name: tuple[int, int]) -> None:
        with lock:
            ran[name] += 1
            running["now"] += 1
            peaks.append(running["now"])
        with lock:
            running["now"] -= 1

    def submit(rival: int) -> None:
        for number in range(each):
            doer.submit(partial(task, (rival, number)), fairness=str(rival), priority=number % 3)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=submit, args=(rival,)) for rival in range(rivals)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        doer.drained()
    finally:
        sys.setswitchinterval(interval)
    assert ran == {(rival, number): 1 for rival in range(rivals) for number in range(each)}
    assert doer.available() == make().available()
    if doer.available() <= 4:
        assert max(peaks) <= 2
