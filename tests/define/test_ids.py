"""Where ids come from."""

import itertools
import os
import sys
import threading
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.define import requests
from django_ayework.define.requests import new_uuid7


@pytest.fixture
def clock(monkeypatch):
    """A clock that shows what it is told, and the ids made by it."""

    def show(*readings):
        remaining = iter(readings)
        monkeypatch.setattr(requests, "_last_tick", 0)
        monkeypatch.setattr(requests.time, "time_ns", lambda: next(remaining))
        return [new_uuid7() for _ in readings]

    return show


def milliseconds(id):
    return uuid.UUID(id).int >> 80


START = 1_700_000_000_000_000_000


def test_an_id_is_a_uuid7_of_now():
    before = time.time_ns() // 1_000_000
    made = new_uuid7()
    assert uuid.UUID(made).version == 7
    assert before <= milliseconds(made) <= time.time_ns() // 1_000_000 + 1


def test_ids_grow_while_the_clock_goes_back_and_follow_it_once_it_has_caught_up(clock):
    made = clock(*[START - second * 10**9 for second in range(100)], START + 5 * 10**6)
    assert made == sorted(made)
    assert milliseconds(made[-2]) == START // 10**6  # not a moment in the past
    assert milliseconds(made[-1]) == START // 10**6 + 5


def test_ids_made_a_microsecond_apart_sort_across_processes(clock):
    # Each time, the one before is forgotten, as another process would not know it.
    made = [clock(START + microsecond * 1000)[0] for microsecond in range(50)]
    assert made == sorted(made)


def test_ids_made_at_one_moment_by_two_processes_differ(clock):
    assert clock(START) != clock(START)


def test_ids_of_a_fork_are_its_own():
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, " ".join(new_uuid7() for _ in range(3)).encode())
        os._exit(0)
    made = {new_uuid7() for _ in range(300)}
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = set(pipe.read().split())

    assert len(theirs) == 3
    assert theirs.isdisjoint(made)


def test_no_two_threads_share_a_tick(monkeypatch):
    ready, made = threading.Barrier(8), []

    def run():
        ready.wait()
        made.append([requests.next_tick() for _ in range(2000)])

    monkeypatch.setattr(requests.time, "time_ns", lambda: 1_700_000_000_000_000_000)
    threads = [threading.Thread(target=run) for _ in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    assert all(some == sorted(some) for some in made)
    assert len({tick for some in made for tick in some}) == 16_000


@given(st.lists(st.integers(0, 2**62), min_size=2, max_size=20))
def test_ids_grow_whatever_the_clock_shows(readings):
    with pytest.MonkeyPatch.context() as patch:
        remaining = iter(readings)
        patch.setattr(requests, "_last_tick", 0)
        patch.setattr(requests.time, "time_ns", lambda: next(remaining))
        ticks = [requests.next_tick() for _ in readings]

    assert all(before < after for before, after in itertools.pairwise(ticks))
