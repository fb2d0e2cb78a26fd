"""A process's ear, lent to a thread that has nothing to do."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from django_ayework.ports.pubsub.listening import Listening
from django_ayework.ports.pubsub.postgres import PostgresPubSub
from django_ayework.worker.wake import Wake
from tests.processes import eventually

LONG = 60.0


class ScriptedEar:
    """Hears what the test says, and notes who listens."""

    def __init__(self, can_be_lent: bool = True) -> None:
        self.can_be_lent = can_be_lent
        self.followed: set[str] = set()
        self.listeners: list[str] = []
        self.is_closed = False
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def follow(self, channels: set[str]) -> bool:
        self.followed = set(channels)
        return True

    def hear(self, seconds: float) -> list[tuple[str | None, str]]:
        self.listeners.append(threading.current_thread().name)
        try:
            said = self._said.get(timeout=seconds)
        except queue.Empty:
            return []
        if isinstance(said, Exception):
            raise said
        return said

    def say(self, said: list[tuple[str, str]] | Exception) -> None:
        self._said.put(said)

    def ring(self) -> None:
        self._said.put([])

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def ears() -> list[ScriptedEar]:
    """The ears that were opened."""
    return []


@pytest.fixture
def process(ears: list[ScriptedEar]) -> Iterator[Listening]:
    """What listens for a process."""

    def open_ear() -> ScriptedEar:
        ears.append(ScriptedEar())
        return ears[-1]

    listening = Listening("lender", open_ear)
    yield listening
    listening.close()


@pytest.fixture
def heard(process: Listening) -> list[tuple[str, str]]:
    """What was heard on a channel, and in which thread."""
    heard: list[tuple[str, str]] = []
    process.subscribe("due", lambda text: heard.append((text, threading.current_thread().name)))
    eventually(lambda: process.is_live and heard)
    heard.clear()
    return heard


def guest(process: Listening, wake: Wake | None = None) -> threading.Thread:
    """A thread that hears by itself until it has heard something, or was woken."""
    is_lent = threading.Event()

    def rest() -> None:
        while not process.hear_here(0.0, Wake()):
            pass
        is_lent.set()
        process.hear_here(LONG, wake or Wake())

    thread = threading.Thread(target=rest, name="guest", daemon=True)
    thread.start()
    assert is_lent.wait(LONG)
    eventually(process._loan._in_use.locked)
    return thread


def test_a_thread_that_has_nothing_to_do_hears_by_itself(process, ears, heard):
    resting = guest(process)
    ears[0].say([("due", "mail"), ("other", "no")])
    resting.join(LONG)
    assert heard == [("mail", "guest")]


def test_unless_the_ear_is_lent_it_is_told_by_the_thread_that_listens(process, ears, heard):
    ears[0].say([("due", "mail")])
    eventually(lambda: heard)
    assert heard == [("mail", "ayework-lender")]


def test_an_ear_that_is_not_used_goes_back_to_the_thread_that_listens(process, ears, heard):
    resting = guest(process)
    ears[0].say([("due", "first")])
    resting.join(LONG)
    eventually(lambda: ears[0].listeners[-1] == "ayework-lender")
    ears[0].say([("due", "second")])
    eventually(lambda: len(heard) == 2)
    resting = guest(process)
    ears[0].say([("due", "third")])
    resting.join(LONG)
    assert heard == [("first", "guest"), ("second", "ayework-lender"), ("third", "guest")]


def test_a_guest_that_rests_for_long_keeps_it(process, ears, heard):
    resting = guest(process)
    assert not threading.Event().wait(0.6)  # more than two of the lender's looks
    assert process._loan.is_made
    ears[0].say([("due", "late")])
    resting.join(LONG)
    assert heard == [("late", "guest")]


def test_what_is_subscribed_to_meanwhile_is_followed(process, ears, heard):
    resting = guest(process)
    others: list[str] = []
    process.subscribe("ended", others.append)
    resting.join(LONG)
    eventually(lambda: ears[0].followed == {"due", "ended"} and others == [""])
    ears[0].say([("ended", "w1")])
    eventually(lambda: others == ["", "w1"])


def test_when_nobody_subscribes_any_more_the_thread_ends_at_once(process, ears, heard):
    resting = guest(process)
    process._listeners.clear()
    process.rest()
    resting.join(LONG)
    assert process._thread is None
    assert ears[0].is_closed
    assert not process.hear_here(LONG, Wake())


def test_one_guest_at_a_time(process, ears, heard):
    resting = guest(process)
    assert not process.hear_here(LONG, Wake())
    ears[0].say([("due", "mail")])
    resting.join(LONG)
    assert heard == [("mail", "guest")]


def test_a_guest_hears_until_it_is_woken(process, ears, heard):
    wake = Wake()
    resting = guest(process, wake)
    wake.set()
    resting.join(LONG / 2)
    assert not resting.is_alive()
    assert heard == []


def test_a_guest_that_was_woken_before_does_not_begin_to_hear(process, ears, heard):
    wake = Wake()
    wake.set()
    eventually(lambda: process.hear_here(0.0, Wake()))
    times = len(ears[0].listeners)
    assert process.hear_here(LONG, wake)
    assert len(ears[0].listeners) == times


def test_an_ear_that_breaks_in_a_guests_hands_is_replaced(process, ears, heard):
    resting = guest(process)
    for _ in range(2):  # the guest meets it, and so does the thread that listens
        ears[0].say(ConnectionError("gone"))
    resting.join(LONG)
    assert not resting.is_alive()
    eventually(lambda: len(ears) == 2 and process.is_live)
    assert ears[0].is_closed
    resting = guest(process)
    heard.clear()
    ears[1].say([("due", "again")])
    resting.join(LONG)
    assert heard == [("again", "guest")]


def test_an_ear_that_cannot_be_rung_is_not_lent(process, ears, heard):
    ears[0].can_be_lent = False
    assert not process.hear_here(LONG, Wake())
    assert not process._loan.is_wanted


@pytest.mark.django_db(transaction=True)
@pytest.mark.vendors("postgresql")
def test_a_worker_at_rest_hears_other_processes_in_its_own_thread(settings):
    from django_ayework import Worker
    from django_ayework.ports.pubsub import get_pubsub
    from django_ayework.ports.pubsub.chosen import forget_all

    forget_all()
    settings.AYEWORK = {"PUBSUB": "postgres", "POLL_INTERVAL": 30}
    pubsub = get_pubsub()
    assert isinstance(pubsub, PostgresPubSub)
    heard: list[str] = []
    with Worker(concurrency=1):
        forget = pubsub.subscribe("due", lambda text: heard.append(threading.current_thread().name))
        eventually(lambda: heard)
        heard.clear()
        eventually(pubsub._loan._in_use.locked)
        pubsub.publish("due", "anything")
        eventually(lambda: heard)
        forget()
    assert heard == ["ayework-leader"]
