"""What each port must do, by the suites that projects use too; and that these find what is wrong."""

import unittest
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from django_ayework.ports.kv import CacheStore, DatabaseStore, LocalStore
from django_ayework.ports.pubsub import PostgresPubSub, RedisPubSub
from django_ayework.ports.pubsub.base import LocalPubSub
from django_ayework.ports.queue import LocalQueue, RedisStreamsQueue
from django_ayework.testing.conformance import PubSubConformance, QueueConformance, StoreConformance


class TestLocalStore(StoreConformance):
    make_store = staticmethod(LocalStore)


@pytest.mark.django_db(transaction=True)
@pytest.mark.races
class TestDatabaseStore(StoreConformance):
    rounds = 10
    make_store = staticmethod(DatabaseStore)


class TestCacheStoreInMemory(StoreConformance):
    make_store = staticmethod(CacheStore)


@pytest.mark.usefixtures("redis_cache")
class TestCacheStoreInRedis(StoreConformance):
    make_store = staticmethod(CacheStore)


class TestLocalQueue(QueueConformance):
    make_queue = staticmethod(LocalQueue)

    def test_a_reader_waits_until_one_of_its_queues_has_an_id(self):
        with self.line() as line, ThreadPoolExecutor(1) as pool:
            popped = []
            for give in (lambda _: line.push("a"), line.queue.put_back):
                reading = pool.submit(line.queue.pop, [line.name, line.other], 1, 60.0)
                assert wait([reading], 0.05).not_done
                give(popped)
                popped = reading.result(20)
                assert [each.id for each in popped] == ["a"]


@pytest.mark.usefixtures("redis_server")
class TestRedisStreamsQueue(QueueConformance):
    make_queue = staticmethod(RedisStreamsQueue)

    def test_as_many_are_popped_as_were_asked_for_whether_pushed_together_or_one_by_one(self):
        with self.line() as line:
            line.push(*map(str, range(2500)))
            assert [len(line.queue.pop([line.name], 100, 5.0)) for _ in range(3)] == [100] * 3
            for number in range(20):
                line.queue.push(line.other, [str(number)])
            assert [len(line.queue.pop([line.other], 6, 5.0)) for _ in range(3)][1:] == [6, 6]


class TestLocalPubSub(PubSubConformance):
    make_pubsub = staticmethod(LocalPubSub)


@pytest.mark.django_db(transaction=True)
@pytest.mark.vendors("postgresql")
class TestPostgresPubSub(PubSubConformance):
    make_pubsub = staticmethod(PostgresPubSub)


@pytest.mark.usefixtures("redis_server")
class TestRedisPubSub(PubSubConformance):
    make_pubsub = staticmethod(RedisPubSub)


class ForgetfulStore(LocalStore):
    """Reads and writes in two steps."""

    def increment(self, key, by=1, ttl=None):
        number = int(self.get(key) or 0) + by
        self.set(key, str(number), ttl)  # its time begins anew, which it must not
        return number


class ForgetfulQueue(LocalQueue):
    """Never gives an id a second time."""

    def pop(self, names, most, wait):
        popped = super().pop(names, most, wait)
        self.ack(popped)
        return popped


class MixedChannels(LocalPubSub):
    """Mixes up its channels."""

    def publish(self, channel, message):
        for other in self._listeners.channels():
            super().publish(other, message)


@pytest.mark.parametrize(
    ("suite", "make", "wrong", "expected"),
    [
        (
            StoreConformance, "make_store", ForgetfulStore,
            {"test_incrementing_gives_a_new_key_its_time_and_leaves_that_of_others"},
        ),
        (
            QueueConformance, "make_queue", ForgetfulQueue,
            {
                "test_what_was_acknowledged_is_gone",
                "test_what_was_kept_for_too_long_is_popped_again",
                "test_what_was_put_back_is_popped_again",
            },
        ),
        (PubSubConformance, "make_pubsub", MixedChannels, {"test_channels_are_apart"}),
    ],
    ids=["store", "queue", "pubsub"],
)  # fmt: skip
def test_a_suite_can_be_used_with_unittest_and_finds_what_is_wrong(suite, make, wrong, expected, monkeypatch):
    monkeypatch.setattr("django_ayework.testing.conformance.shared.PATIENCE", 0.1)
    case = type("Wrong", (suite, unittest.TestCase), {make: staticmethod(wrong)})
    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(outcome)
    failed = {failed.id().rpartition(".")[2] for failed, _ in outcome.failures + outcome.errors}
    assert outcome.testsRun > (20 if suite is StoreConformance else 8)
    assert failed == expected or (suite is StoreConformance and failed >= expected)
