"""Limits that hold for all processes together."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from django_ayework.doers import Allowed, Denied, FixedWindow, SlidingWindow, TokenBucket
from django_ayework.ports import kv
from django_ayework.ports.kv import get_store
from django_ayework.ports.kv.local import LocalStore
from django_ayework.testing import time_travel
from tests.processes import PATIENCE, ROOT
from tests.races.rivals import race

RATES = [FixedWindow, SlidingWindow, TokenBucket]
HOUR = 3600.0


@pytest.fixture
def local(settings: Any) -> LocalStore:
    """A Store in memory, fresh for this test."""
    store = LocalStore()
    settings.AYEWORK = {"STORE": store}
    return store


@pytest.mark.parametrize("kind", RATES)
def test_a_count_goes_on_from_where_another_process_has_left_it(local, kind):
    assert [bool(kv.hit(kind(3, HOUR), ("key", "a"))) for _ in range(4)] == [True, True, True, False]
    assert not kv.peek(kind(3, HOUR), ("key", "a"))


@pytest.mark.parametrize("kind", RATES)
def test_names_and_limits_are_counted_apart(local, kind):
    hits = [
        kv.hit(kind(1, HOUR), ("key", "a")),
        kv.hit(kind(1, HOUR), ("key", "b")),
        kv.hit(kind(1, HOUR), ("key", "a", "b")),
        kv.hit(kind(2, HOUR), ("key", "a")),
        kv.hit(kind(1, HOUR + 1), ("key", "a")),
    ]

    assert hits == [Allowed()] * 5


def test_ways_to_count_are_counted_apart(local):
    assert [kv.hit(kind(1, HOUR), ("key", "a")) for kind in RATES] == [Allowed()] * 3


def test_looking_and_being_refused_write_nothing(local):
    name = ("key", "a")
    kv.peek(FixedWindow(1, HOUR), name)
    assert local._entries == {}
    kv.hit(FixedWindow(1, HOUR), name)
    before = dict(local._entries)
    kv.hit(FixedWindow(1, HOUR), name)
    assert local._entries == before


def test_the_window_ends_on_the_engines_clock(local):
    name = ("key", "a")
    kv.hit(FixedWindow(1, 60), name)
    time_travel(59)
    refused = kv.hit(FixedWindow(1, 60), name)
    assert 0 < refused.retry_after <= 1
    time_travel(refused.retry_after)
    assert kv.hit(FixedWindow(1, 60), name)


def test_a_count_is_forgotten_once_it_is_as_good_as_none(local):
    kv.hit(TokenBucket(1, 60), ("key", "a"))
    time_travel(timedelta(seconds=121))
    local.set("other", "")

    assert set(local._entries) == {"other"}


def test_whoever_loses_again_and_again_is_put_off_and_counted_nowhere(local, monkeypatch):
    monkeypatch.setattr(local, "swap", lambda *args, **kwargs: False)

    assert kv.hit(FixedWindow(1, HOUR), ("key", "a")) == Denied(0.0)
    assert local._entries == {}


def test_a_count_that_somebody_has_scribbled_on_begins_anew(local):
    rate, name = FixedWindow(1, HOUR), ("key", "a")
    local.set(kv.key_of(rate, name), "scribble")

    assert kv.hit(rate, name)
    assert not kv.hit(rate, name)


def test_any_text_may_be_in_a_name(local):
    for text in ("", "Ann and Bob", "x" * 1000, "🚀", "\0", "\udcff"):
        assert kv.hit(FixedWindow(1, HOUR), ("label", text))


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize("store", ["database", "cache", "local"])
@pytest.mark.django_db(transaction=True)
@pytest.mark.races
def test_threads_together_are_allowed_exactly_the_limit(settings, store, kind):
    settings.AYEWORK = {"STORE": store}
    limit, rounds, allowed = 20, 15, []

    def hit(number: int) -> None:
        rate = kind(limit, HOUR)
        while isinstance(verdict := kv.hit(rate, ("key", kind.__name__)), Denied):
            if verdict.retry_after:
                return
        allowed.append(number)

    race(rounds, hit, hit, hit)

    assert len(allowed) == limit


HITS = """
import json, os, sys
from django.conf import settings
import tests.settings as given
settings.configure(**{key: value for key, value in vars(given).items() if key.isupper()})
settings.CACHES, settings.AYEWORK = json.loads(os.environ["CACHES"]), {"STORE": os.environ["STORE"]}
import django
django.setup()
from django_ayework.doers import Denied, TokenBucket
from django_ayework.ports import kv
print("ready", flush=True)
sys.stdin.readline()
allowed = 0
while not (verdict := kv.hit(TokenBucket(100, 360_000), ("key", "fleet"))) or (allowed := allowed + 1):
    if isinstance(verdict, Denied) and verdict.retry_after:
        break
print(allowed)
"""


def hits_of_processes(env: dict[str, str], count: int) -> list[int]:
    """How many hits each of several processes was allowed, all hammering at the same time."""
    start = partial(
        subprocess.Popen, [sys.executable, "-c", HITS], cwd=ROOT, env=env, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    processes = [start() for _ in range(count)]
    try:
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * count
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        return [int(process.communicate(timeout=PATIENCE)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.races
def test_processes_together_are_allowed_exactly_the_limit(process_env):
    allowed = hits_of_processes(process_env | {"STORE": "database", "CACHES": "{}"}, 2)

    assert sum(allowed) == 100


@pytest.mark.races
def test_processes_that_share_a_cache_are_allowed_exactly_the_limit(process_env, redis_cache):
    allowed = hits_of_processes(
        process_env | {"STORE": "cache", "CACHES": json.dumps({"default": redis_cache})}, 2
    )

    assert sum(allowed) == 100


def test_the_store_in_the_settings_is_the_one_that_counts(local):
    assert get_store() is local
