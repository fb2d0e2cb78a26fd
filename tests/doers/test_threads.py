"""The threads of doers: timers and pools."""

import queue
import threading

import pytest

from django_ayework import doers
from django_ayework.doers import base
from django_ayework.doers.base import Timer
from django_ayework.doers.bounded import ThreadPool
from tests.doers.kit import PATIENCE
from tests.processes import eventually


class Bell:
    """Rings of a timer, each of which lasts until it is released."""

    def __init__(self) -> None:
        self.rings = 0
        self.rang, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def ring(self) -> None:
        self.rings += 1
        self.rang.release()
        assert self.go_on.acquire(timeout=PATIENCE)

    def wait(self) -> None:
        assert self.rang.acquire(timeout=PATIENCE)


@pytest.fixture
def bell():
    bell = Bell()
    yield bell
    for _ in range(9):
        bell.go_on.release()


def test_the_soonest_of_several_times_counts(bell):
    timer = Timer(bell.ring)
    timer.set(3600.0)
    timer.cancel()
    assert timer._due_at is None
    for times in ((3600.0, 0.0), (0.0, 3600.0)):
        for seconds in times:
            timer.set(seconds)
        bell.wait()
        assert timer._due_at is None  # the later time was replaced
        bell.go_on.release()


def test_what_is_set_during_a_ring_rings_once_more_and_never_at_the_same_time(bell):
    timer = Timer(bell.ring)
    timer.set(0.0)
    bell.wait()
    for _ in range(5):
        timer.set(0.0)
    assert bell.rings == 1
    bell.go_on.release()
    bell.wait()
    bell.go_on.release()
    assert (bell.rings, timer._due_at) == (2, None)


def test_the_thread_of_a_timer_ends_when_it_is_idle_and_is_started_again(monkeypatch):
    monkeypatch.setattr(base, "LINGER", 0.0)
    threads = []
    timer = Timer(lambda: threads.append(threading.current_thread()))
    for count in (1, 2, 3):
        timer.set(0.0)
        eventually(lambda count=count: len(threads) == count)
        threads[-1].join(PATIENCE)
        assert not threads[-1].is_alive()
    assert len({*threads, threading.current_thread()}) == 4


def test_a_timer_survives_an_error_of_its_ring_and_a_thread_that_could_not_start(monkeypatch):
    rings = threading.Semaphore(0)

    def ring() -> None:
        rings.release()
        raise SystemExit

    timer = Timer(ring)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        timer.set(0.0)
    timer.set(5.0)
    for _ in range(3):
        timer.set(0.0)
        assert rings.acquire(timeout=PATIENCE)


def test_connections_are_closed_when_threads_end(monkeypatch):
    monkeypatch.setattr(base, "LINGER", 0.0)
    seen, left = set(), set()
    monkeypatch.setattr(base.providers, "close_connections", lambda: left.add(threading.current_thread()))
    doer = doers.rate_limited(1, 60)
    doer.on_room(lambda: seen.add(threading.current_thread()))
    doer.submit(lambda: None)
    eventually(lambda: len(seen) == 2 and seen <= left)
    assert sorted(thread.name for thread in seen) == ["ayework-doer", "ayework-timer"]


def refuse(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_pool_reuses_its_threads_which_end_when_idle(monkeypatch):
    pool, threads, done = ThreadPool(), [], threading.Semaphore(0)

    def act() -> None:
        threads.append(threading.current_thread())
        done.release()

    def run() -> None:
        pool.run(act)
        assert done.acquire(timeout=PATIENCE)
        eventually(lambda: pool._unfinished == 0)

    for _ in range(5):
        run()
    assert len(set(threads)) == 1
    monkeypatch.setattr(base, "LINGER", 0.0)
    pool = ThreadPool()
    for _ in range(2):
        run()
        eventually(lambda: pool._threads == 0)
    assert len(set(threads)) == 3


def test_a_pool_that_can_start_no_thread_uses_another(monkeypatch):
    pool, go, ran = ThreadPool(), threading.Event(), []
    pool.run(lambda: go.wait(PATIENCE))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool.run(lambda: ran.append(1))
    go.set()
    eventually(lambda: ran == [1])


def test_a_task_that_comes_as_a_thread_ends_is_run(monkeypatch):
    ran = []

    class Late(queue.SimpleQueue):
        """Something comes right after the thread has found nothing."""

        def get(self, timeout):
            try:
                return super().get(timeout=0)
            except queue.Empty:
                if ran == ["first"]:
                    pool.run(lambda: ran.append("second"))
                raise

    pool = ThreadPool()
    pool._queue = Late()
    pool.run(lambda: ran.append("first"))
    eventually(lambda: ran == ["first", "second"])
