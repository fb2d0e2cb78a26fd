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

START = 1_700_000_000_000_000_000


def made_at(*readings, make=new_uuid7):
    """Make one at each reading of the clock; what was made before is unknown, as in another process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "_last_tick", 0)
        patch.setattr(requests.time, "time_ns", iter(readings).__next__)
        return [make() for _ in readings]


def milliseconds(id):
    return uuid.UUID(id).int >> 80


def test_an_id_is_a_uuid7_of_now():
    before = time.time_ns() // 1_000_000
    made = new_uuid7()
    assert uuid.UUID(made).version == 7
    assert before <= milliseconds(made) <= time.time_ns() // 1_000_000 + 1


def test_ids_grow_while_the_clock_goes_back_and_follow_it_once_it_has_caught_up():
    made = made_at(*[START - second * 10**9 for second in range(100)], START + 5 * 10**6)
    assert made == sorted(made)
    assert milliseconds(made[-2]) == START // 10**6  # not a moment in the past
    assert milliseconds(made[-1]) == START // 10**6 + 5


def test_ids_of_several_processes_differ_at_one_moment_and_sort_when_made_a_microsecond_apart():
    assert made_at(START) != made_at(START)
    made = [made_at(START + microsecond * 1000)[0] for microsecond in range(50)]
    assert made == sorted(made)


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

    monkeypatch.setattr(requests.time, "time_ns", lambda: START)
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
    ticks = made_at(*readings, make=requests.next_tick)
    assert all(before < after for before, after in itertools.pairwise(ticks))
