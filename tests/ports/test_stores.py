"""Stores and queues: how one is chosen, what each keeps, and limits that all processes count in one store."""

import json
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.core.cache import caches
from django.db import transaction

from django_ayework.doers import Allowed, Denied, FixedWindow, SlidingWindow, TokenBucket
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.maintenance import prune_others
from django_ayework.models import StoreEntry
from django_ayework.ports import kv
from django_ayework.ports import queue as streams
from django_ayework.ports.kv import CacheStore, DatabaseStore, LocalStore, get_store
from django_ayework.ports.queue import LocalQueue, RedisStreamsQueue, get_queue, key_of
from django_ayework.store.database import clock
from django_ayework.testing import now, time_travel
from tests.marks import on_sqlite
from tests.processes import PATIENCE, ROOT, eventually
from tests.races.rivals import race
from tests.rules.moments import NOON

RATES = [FixedWindow, SlidingWindow, TokenBucket]
HOUR = 3600.0
NAME = ("key", "a")


class OwnStore(LocalStore):
    """A Store of a project."""


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"STORE": "database"}, DatabaseStore),
        ({}, DatabaseStore),
        ({"STORE": "cache"}, CacheStore),
        ({"STORE": OwnStore}, OwnStore),
        ({"STORE": f"{__name__}.OwnStore"}, OwnStore),
        ({"STORE": CacheStore("limits")}, CacheStore),
    ],
)
def test_the_settings_name_the_store(settings, given, kind):
    settings.AYEWORK = given
    assert type(get_store()).__name__ == kind.__name__
    assert get_store() is get_store()
    if isinstance(given.get("STORE"), CacheStore):
        assert get_store() is given["STORE"]


def test_the_local_store_is_one_for_the_whole_process(settings):
    settings.AYEWORK = {"STORE": "local"}
    get_store().set("tests-one", "1")
    settings.AYEWORK = {"STORE": "local", "LEASE": 5}
    assert get_store().get("tests-one") == "1"


@pytest.mark.django_db
def test_expired_entries_of_the_database_store_are_pruned_and_its_keys_are_not_those_of_claims():
    store = DatabaseStore()
    store.set("old", "", ttl=60)
    store.set("new", "", ttl=120)
    store.set("claim:report", "")
    time_travel(61)
    prune_others()
    assert StoreEntry.objects.count() == 2
    assert [store.get(key) for key in ("old", "new", "claim:report")] == [None, "", ""]
    assert EngineServices().claim("report")


@pytest.mark.django_db(transaction=True)
def test_what_the_database_store_does_in_a_transaction_is_part_of_it():
    store = DatabaseStore()
    store.set("kept", "1")
    with transaction.atomic():
        store.increment("kept")
        store.set("new", "1")
        transaction.set_rollback(True)
    assert (store.get("kept"), store.get("new")) == ("1", None)


def test_the_local_store_drops_expired_entries():
    store = LocalStore()
    for number in range(100):
        store.increment(f"k{number}", ttl=60)
    time_travel(61)
    store.set("one more", "", ttl=1e300)
    assert list(store._entries) == ["one more"]
    assert store.get("one more") == ""
    assert now().year < 9999


def test_the_local_store_holds_a_key_until_its_very_end(monkeypatch):
    moment = NOON
    monkeypatch.setattr(clock, "now", lambda: moment)
    store = LocalStore()
    store.set("k", "v", ttl=60)
    moment = NOON + timedelta(seconds=60, microseconds=-1)
    assert store.get("k") == "v"
    moment = NOON + timedelta(seconds=60)
    assert store.get("k") is None


def test_a_cache_keeps_entries_no_longer_than_it_must(monkeypatch):
    kept = []
    monkeypatch.setattr(caches["default"], "set", lambda key, value, timeout: kept.append(timeout))
    for ttl in (0.5, None, timedelta(days=60)):
        CacheStore().set("key", "", ttl=ttl)
    assert kept == [1 + kv.SLACK, None, 60 * 86_400 + kv.SLACK]


def test_a_lock_that_is_never_given_back_is_named_and_one_that_has_run_out_is_the_next_holders(monkeypatch):
    deleted = []
    monkeypatch.setattr(kv, "LOCK_LIFE", 0)
    monkeypatch.setattr(caches["default"], "add", lambda key, value, timeout: True)
    monkeypatch.setattr(caches["default"], "delete", deleted.append)
    CacheStore().set("mine", "")
    assert deleted == []
    monkeypatch.setattr(kv, "PATIENCE", 0.0)
    monkeypatch.setattr(caches["default"], "add", lambda key, value, timeout: False)
    with pytest.raises(TimeoutError, match="the cache 'default' keeps 'mine' locked"):
        CacheStore().set("mine", "")


@pytest.fixture
def local(settings):
    """A Store in memory, fresh for this test."""
    store = LocalStore()
    settings.AYEWORK = {"STORE": store}
    return store


@pytest.mark.parametrize("kind", RATES)
def test_a_count_goes_on_from_where_another_process_has_left_it(local, kind):
    assert [bool(kv.hit(kind(3, HOUR), NAME)) for _ in range(4)] == [True, True, True, False]
    assert not kv.peek(kind(3, HOUR), NAME)


@pytest.mark.parametrize("kind", RATES)
def test_names_limits_and_kinds_are_counted_apart(local, kind):
    texts = ("", "Ann", "x" * 1000, "🚀", "\0", "\udcff")
    names = [("key", "b"), ("key", "a", "b"), *(("label", text) for text in texts)]
    hits = [
        *(kv.hit(each(1, HOUR), NAME) for each in RATES),
        *(kv.hit(kind(1, HOUR), name) for name in names),
        *(kv.hit(rate, NAME) for rate in (kind(2, HOUR), kind(1, HOUR + 1))),
    ]
    assert hits == [Allowed()] * 13


def test_looking_and_being_refused_write_nothing(local):
    kv.peek(FixedWindow(1, HOUR), NAME)
    assert local._entries == {}
    kv.hit(FixedWindow(1, HOUR), NAME)
    before = dict(local._entries)
    kv.hit(FixedWindow(1, HOUR), NAME)
    assert local._entries == before


def test_the_window_ends_on_the_engines_clock_and_a_count_that_is_as_good_as_none_is_forgotten(local):
    kv.hit(FixedWindow(1, 600), NAME)
    time_travel(590)
    refused = kv.hit(FixedWindow(1, 600), NAME)
    assert 0 < refused.retry_after <= 10
    time_travel(refused.retry_after)
    assert kv.hit(FixedWindow(1, 600), NAME)
    time_travel(1201)
    kv.hit(TokenBucket(1, 60), NAME)
    time_travel(121)
    local.set("other", "")
    assert set(local._entries) == {"other"}


def test_a_hit_that_loses_every_swap_is_denied_and_not_counted(local, monkeypatch):
    assert get_store() is local
    monkeypatch.setattr(local, "swap", lambda *args, **kwargs: False)
    assert kv.hit(FixedWindow(1, HOUR), NAME) == Denied(0.0)
    assert local._entries == {}


def test_a_count_that_cannot_be_read_begins_anew(local):
    rate = FixedWindow(1, HOUR)
    local.set(kv.key_of(rate, NAME), "scribble")
    assert kv.hit(rate, NAME)
    assert not kv.hit(rate, NAME)


#: Other stores than that of the database need be tried beside one database only.


@pytest.mark.parametrize("kind", RATES)
@pytest.mark.parametrize(
    "store", ["database", *(pytest.param(store, marks=on_sqlite) for store in ("cache", "local"))]
)
@pytest.mark.django_db(transaction=True)
@pytest.mark.races
def test_threads_together_are_allowed_exactly_the_limit(settings, store, kind):
    settings.AYEWORK = {"STORE": store}
    limit, rounds, allowed = 20, 15, []

    def hit(number):
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
while not (verdict := kv.hit(TokenBucket(40, 360_000), ("key", "fleet"))) or (allowed := allowed + 1):
    if isinstance(verdict, Denied) and verdict.retry_after:
        break
print(allowed)
"""


@pytest.mark.races
@pytest.mark.parametrize(
    "store",
    ["database", pytest.param("cache", marks=pytest.mark.vendors("postgresql"))],
)
def test_processes_together_are_allowed_exactly_the_limit(process_env, store, request):
    caches = {"default": request.getfixturevalue("redis_cache")} if store == "cache" else {}
    env = process_env | {"STORE": store, "CACHES": json.dumps(caches)}
    options = {"env": env, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    processes = [subprocess.Popen([sys.executable, "-c", HITS], **options) for _ in range(2)]
    try:
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
        for process in processes:
            print("go", file=process.stdin, flush=True)
        assert sum(int(process.communicate(timeout=PATIENCE)[0]) for process in processes) == 40
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_the_settings_name_the_queue_of_each_queue(settings):
    own = LocalQueue()
    local = "django_ayework.ports.queue.LocalQueue"
    given = {"bulk": "redis-streams", "mail": own, "video": local}
    settings.AYEWORK = {"QUEUES": {name: {"DELIVERY": delivery} for name, delivery in given.items()}}
    assert isinstance(get_queue("bulk"), RedisStreamsQueue)
    assert get_queue("mail") is own
    assert isinstance(get_queue("video"), LocalQueue)


@pytest.fixture
def stream(redis_server):
    """A Queue, and a name in it that nobody else uses."""
    queue, name = RedisStreamsQueue(), f"tests-{uuid.uuid4()}"
    yield queue, name
    queue._reader.get().delete(key_of(name))
    queue.close()


def test_a_stream_of_redis_is_bounded(stream, monkeypatch):
    queue, name = stream
    monkeypatch.setattr(streams, "LONGEST_STREAM", 200)
    for _ in range(30):
        queue.push(name, ["x"] * 30)
    assert 200 <= queue._reader.get().xlen(key_of(name)) < 400


def test_ids_arrive_after_redis_was_flushed(stream):
    queue, name = stream
    queue.push(name, ["a"])
    [popped] = queue.pop([name], 1, 0.5)
    queue._reader.get().delete(key_of(name))
    queue.ack([popped])
    queue.push(name, ["b"])
    assert [popped.id for popped in queue.pop([name], 1, 0.5)] == ["b"]


def test_a_reader_that_waits_goes_on_when_redis_is_flushed(stream):
    queue, name = stream
    queue.push(name, ["a"])
    queue.ack(queue.pop([name], 1, 0.5))
    client = queue._writer.get()
    with ThreadPoolExecutor() as threads:
        popped = threads.submit(queue.pop, [name], 1, 5)
        eventually(lambda: any(each["flags"] == "b" for each in client.client_list()))
        client.delete(key_of(name))
        queue.push(name, ["b"])
        assert [each.id for each in popped.result(10)] == ["b"]


def test_entries_that_cannot_be_read_are_deleted_and_hold_up_no_others(stream, caplog):
    queue, name = stream
    client, key = queue._reader.get(), key_of(name)
    queue.push(name, ["a"])
    texts = ["not json", '["c", null]', '{"a": 1}', '"\xff', "7", "[]", "[" * 100_000]
    for fields in ({"foo": "bar"}, *({"ids": text.encode("latin-1")} for text in texts)):
        client.xadd(key, fields)
    queue.push(name, ["b"])
    popped = queue.pop([name], 1_000, 0.5)
    assert [each.id for each in popped] == ["a", "b"]
    assert (client.xlen(key), client.xpending(key, streams.GROUP)["pending"]) == (2, 2)
    assert caplog.text.count("has no readable ids and is deleted") == len(texts) + 1
    queue.ack(popped)
    assert client.xlen(key) == 0
