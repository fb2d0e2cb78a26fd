"""Queues: what each must do, how one is chosen, and what Redis Streams keep."""

from __future__ import annotations

import unittest
import uuid
from typing import Any

import pytest

from django_ayework.ports.queue import PoppedId, Queue, get_queue
from django_ayework.ports.queue import redis as streams
from django_ayework.ports.queue.base import LocalQueue
from django_ayework.ports.queue.redis import RedisStreamsQueue, key_of
from django_ayework.testing.conformance import QueueConformance


class TestLocalQueue(QueueConformance):
    def make_queue(self, lapse: float) -> Queue:
        return LocalQueue(lapse)


class TestRedisStreamsQueue(QueueConformance):
    @pytest.fixture(autouse=True)
    def server(self, settings: Any, redis_url: str) -> None:
        settings.AYEWORK = {"REDIS_URL": redis_url}

    def make_queue(self, lapse: float) -> Queue:
        return RedisStreamsQueue(lapse)


class Forgetful(LocalQueue):
    """A Queue of a project that never gives an id a second time."""

    def pop(self, names: Any, most: int, wait: float) -> list[PoppedId]:
        popped = super().pop(names, most, wait)
        self.ack(popped)
        return popped


def test_the_suite_can_be_used_with_unittest_and_finds_what_is_wrong(monkeypatch):
    monkeypatch.setattr("django_ayework.testing.conformance.shared.PATIENCE", 0.1)

    class Wrong(QueueConformance, unittest.TestCase):
        def make_queue(self, lapse: float) -> Queue:
            return Forgetful(lapse)

    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Wrong).run(outcome)
    failed = {failed.id().rpartition(".")[2] for failed, _ in outcome.failures + outcome.errors}
    assert failed == {
        "test_what_was_acknowledged_is_gone",
        "test_what_was_kept_for_too_long_is_popped_again",
        "test_what_was_put_back_is_popped_again",
    }


def test_the_settings_name_the_queue_of_each_queue(settings):
    own = LocalQueue()
    settings.AYEWORK = {
        "QUEUES": {
            "bulk": {"DELIVERY": "redis-streams"},
            "mail": {"DELIVERY": own},
            "video": {"DELIVERY": "django_ayework.ports.queue.base.LocalQueue"},
        }
    }
    assert isinstance(get_queue("bulk"), RedisStreamsQueue)
    assert get_queue("mail") is own
    assert isinstance(get_queue("video"), LocalQueue)


@pytest.fixture
def stream(settings: Any, redis_url: str) -> Any:
    """A Queue, and a name in it that nobody else uses."""
    settings.AYEWORK = {"REDIS_URL": redis_url}
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
