"""Tests that every implementation of a port must pass, to inherit from: of a PubSub, and of a Store."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from django.db import connections

from django_ayework.ports.kv.base import Store
from django_ayework.ports.pubsub.base import PubSub
from django_ayework.testing.running import time_travel

T = TypeVar("T")

#: Texts that some ways to send them lose, shorten, or take for others.
AWKWARD_MESSAGES = (" ", "a", "a ", " a", "'", '"', "%s", "\\", "\\n", "null", '["a",null]', "x" * 7000)
#: Seconds after which a message that was sent again and again counts as lost.
PATIENCE = 20.0


class PubSubConformance:
    """The tests of a PubSub that carries messages, for pytest and for unittest; see ``make_pubsub``.

    One in the database needs real transactions: ``TransactionTestCase``, or ``django_db(transaction=True)``.

    Example::

        class TestMyPubSub(PubSubConformance):
            def make_pubsub(self):
                return MyPubSub()
    """

    def make_pubsub(self) -> PubSub:
        """Return a PubSub to be tested; each test closes it, and uses channels of its own."""
        raise NotImplementedError("return a PubSub from make_pubsub().")

    def test_a_message_is_heard(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            assert stage.is_heard(stage.listen("one"), "one")

    def test_a_message_is_heard_as_it_was_sent(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            heard = stage.listen("one")
            assert all(stage.is_heard(heard, "one", text) for text in AWKWARD_MESSAGES)

    def test_everybody_who_listens_hears(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            first, second = stage.listen("one"), stage.listen("one")
            assert stage.is_heard(first, "one", "both")
            assert stage.is_heard(second, "one", "both")

    def test_channels_are_apart(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            one, two = stage.listen("one"), stage.listen("two")
            assert stage.is_heard(one, "one", "for one")
            assert stage.is_heard(two, "two", "for two")
            assert "for two" not in one
            assert "for one" not in two

    def test_a_channel_that_is_listened_to_later_is_heard_too(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            assert stage.is_heard(stage.listen("one"), "one")
            assert stage.is_heard(stage.listen("two"), "two")

    def test_who_has_ended_a_subscription_hears_no_more(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            gone, stays = list[str](), stage.listen("one")
            unsubscribe = stage.pubsub.subscribe(stage.channel("one"), gone.append)
            assert stage.is_heard(gone, "one")
            unsubscribe()
            unsubscribe()
            assert stage.is_heard(stays, "one", "after it")
            assert "after it" not in gone

    def test_a_listener_that_raises_disturbs_nobody(self) -> None:
        def raises(message: str) -> None:
            raise ArithmeticError(message)

        with Stage(self.make_pubsub()) as stage:
            stage.pubsub.subscribe(stage.channel("one"), raises)
            heard = stage.listen("one")
            assert stage.is_heard(heard, "one", "first")
            assert stage.is_heard(heard, "one", "second")

    def test_any_thread_may_publish(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            heard = stage.listen("one")
            threads = [
                threading.Thread(target=stage.publish_until_heard, args=(heard, "one", f"from {number}"))
                for number in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE + 10)
            assert {f"from {number}" for number in range(4)} <= set(heard)

    def test_a_message_that_nobody_listens_to_is_gone(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            stage.pubsub.publish(stage.channel("one"), "before")
            heard = stage.listen("one")
            assert stage.is_heard(heard, "one", "after")
            assert "before" not in heard

    def test_it_may_be_used_again_after_it_was_closed(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            before = stage.listen("one")
            assert stage.is_heard(before, "one", "before")
            stage.pubsub.close()
            stage.pubsub.close()
            assert stage.is_heard(stage.listen("one"), "one", "after")
            assert "after" not in before


class Stage:
    """A PubSub, with channels that nobody else uses; closed at the end of a ``with`` block."""

    def __init__(self, pubsub: PubSub) -> None:
        self.pubsub = pubsub
        self._prefix = f"conformance_{uuid.uuid4().hex[:12]}_"

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: object) -> None:
        self.pubsub.close()

    def channel(self, name: str) -> str:
        """Return the channel that has this name here."""
        return self._prefix + name

    def listen(self, name: str) -> list[str]:
        """Listen to a channel; return where its messages will be found."""
        heard: list[str] = []
        self.pubsub.subscribe(self.channel(name), heard.append)
        return heard

    def is_heard(self, heard: list[str], name: str, message: str = "hello") -> bool:
        """Send a message, again and again as it may be lost, and tell whether it is heard."""
        return eventually(lambda: self.pubsub.publish(self.channel(name), message), lambda: message in heard)

    def publish_until_heard(self, heard: list[str], name: str, message: str) -> None:
        """Do so in a thread of its own, and leave no connection behind."""
        try:
            self.is_heard(heard, name, message)
        finally:
            connections.close_all()


def eventually(act: Callable[[], object], is_done: Callable[[], bool]) -> bool:
    """Act again and again until it is done; return whether it ever was."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        act()
        for _ in range(20):
            if is_done():
                return True
            time.sleep(0.005)
    return False


#: Texts that some storage loses, shortens, or takes for others.
AWKWARD_TEXTS = (
    "", " ", "a", "A", "a ", " a", "ä", "🚀", "a\nb", "\0", "'", '"', "%s", "\\", "1", "01", "null",
)  # fmt: skip


class StoreConformance:
    """The tests of a Store, for pytest and for unittest. Say how to make one in ``make_store``.

    If your Store does not follow the engine's clock, override ``pass_time``, to sleep for instance. A Store
    in the database needs real transactions: ``TransactionTestCase``, or ``django_db(transaction=True)``.

    Example::

        class TestMyStore(StoreConformance):
            def make_store(self):
                return MyStore()
    """

    #: Threads that act at the same moment, and how often each.
    rivals, rounds = 4, 25

    def make_store(self) -> Store:
        """Return a Store to be tested; each test uses keys of its own."""
        raise NotImplementedError("return a Store from make_store().")

    def pass_time(self, seconds: float) -> None:
        """Let this time go by for the Store."""
        time_travel(seconds)

    def test_a_key_is_not_set_at_first(self) -> None:
        store, key = self.make_store(), new_key()
        store.delete(key)
        assert store.get(key) is None

    def test_a_key_is_set_set_again_and_deleted(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one")
        assert store.get(key) == "one"
        store.set(key, "two")
        assert store.get(key) == "two"
        store.delete(key)
        assert store.get(key) is None

    def test_any_text_is_a_value(self) -> None:
        store, key = self.make_store(), new_key()
        for value in (*AWKWARD_TEXTS, "x" * 100_000):
            store.set(key, value)
            assert store.get(key) == value

    def test_any_text_is_a_key_and_no_two_are_one(self) -> None:
        store, prefix = self.make_store(), new_key()
        keys = [f"{prefix}{text}" for text in (*AWKWARD_TEXTS, "x" * 1000, "x" * 1001)]
        for number, key in enumerate(keys):
            store.set(key, str(number))
        assert [store.get(key) for key in keys] == [str(number) for number in range(len(keys))]

    def test_what_one_store_sets_another_of_its_kind_sees(self) -> None:
        key = new_key()
        store = self.make_store()
        store.set(key, "one")
        assert on_thread(lambda: store.get(key)) == "one"

    def test_a_key_stays_for_its_time(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one", ttl=60)
        self.pass_time(59)
        assert store.get(key) == "one"
        self.pass_time(1)
        assert store.get(key) is None

    def test_a_key_without_a_time_stays(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one", ttl=1)
        store.set(key, "two")
        self.pass_time(2)
        assert store.get(key) == "two"

    def test_a_time_may_be_a_timedelta_but_not_nothing(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one", ttl=timedelta(minutes=1))
        assert store.get(key) == "one"
        for ttl in (0, -1, timedelta()):
            assert raises(ValueError, lambda ttl=ttl: store.set(key, "two", ttl=ttl))  # type: ignore[misc]
        assert store.get(key) == "one"

    def test_a_key_is_set_if_it_is_absent(self) -> None:
        store, key = self.make_store(), new_key()
        assert store.set_if_absent(key, "one") is True
        assert store.set_if_absent(key, "two") is False
        assert store.get(key) == "one"
        store.delete(key)
        assert store.set_if_absent(key, "three") is True

    def test_a_key_that_has_run_out_is_absent(self) -> None:
        store, key = self.make_store(), new_key()
        store.set_if_absent(key, "one", ttl=60)
        self.pass_time(60)
        assert store.set_if_absent(key, "two", ttl=60) is True
        self.pass_time(59)
        assert store.get(key) == "two"

    def test_incrementing_counts_from_nothing(self) -> None:
        store, key = self.make_store(), new_key()
        assert [store.increment(key), store.increment(key, 10), store.increment(key, -12)] == [1, 11, -1]
        assert store.get(key) == "-1"

    def test_incrementing_goes_on_from_a_number_that_was_set(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "9007199254740993")
        assert store.increment(key) == 9007199254740994

    def test_incrementing_gives_a_new_key_its_time_and_leaves_that_of_others(self) -> None:
        store, key = self.make_store(), new_key()
        store.increment(key, ttl=60)
        self.pass_time(59)
        assert store.increment(key, ttl=3600) == 2
        self.pass_time(1)
        assert store.get(key) is None
        assert store.increment(key, ttl=60) == 1

    def test_what_is_no_number_is_not_incremented(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one")
        assert raises(ValueError, lambda: store.increment(key))
        assert store.get(key) == "one"

    def test_a_key_is_swapped_if_it_is_as_expected(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one")
        assert store.swap(key, "two", "three") is False
        assert store.get(key) == "one"
        assert store.swap(key, "one", "two") is True
        assert store.get(key) == "two"

    def test_swapping_compares_exactly(self) -> None:
        store, key = self.make_store(), new_key()
        for value in AWKWARD_TEXTS:
            store.set(key, value)
            for other in AWKWARD_TEXTS:
                assert store.swap(key, other, value) is (other == value), (value, other)

    def test_swapping_nothing_sets_a_key_that_is_absent(self) -> None:
        store, key = self.make_store(), new_key()
        assert store.swap(key, "one", "two") is False
        assert store.swap(key, None, "one") is True
        assert store.swap(key, None, "two") is False
        assert store.get(key) == "one"

    def test_swapping_begins_the_time_anew(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one", ttl=60)
        self.pass_time(59)
        assert store.swap(key, "one", "two", ttl=60) is True
        self.pass_time(59)
        assert store.get(key) == "two"
        self.pass_time(1)
        assert store.swap(key, "two", "three") is False
        assert store.swap(key, None, "three") is True

    def test_rivals_increment_exactly(self) -> None:
        store, key = self.make_store(), new_key()
        sums = self.race(lambda number: store.increment(key))
        assert sorted(sums) == list(range(1, self.rivals * self.rounds + 1))

    def test_of_rivals_one_sets_an_absent_key(self) -> None:
        store, prefix = self.make_store(), new_key()
        won = self.race(lambda number: store.set_if_absent(f"{prefix}{number}", "", ttl=60) and number)
        assert sorted(number for number in won if number is not False) == list(range(self.rounds))

    def test_rivals_swap_exactly(self) -> None:
        store, key = self.make_store(), new_key()

        def add_one(number: int) -> int:
            while True:
                before = store.get(key)
                after = int(before or 0) + 1
                if store.swap(key, before, str(after), ttl=60):
                    return after

        assert sorted(self.race(add_one)) == list(range(1, self.rivals * self.rounds + 1))

    def race(self, act: Callable[[int], T]) -> list[T]:
        """Let rivals act at the same moment, round after round; return what they got."""
        start, got, errors = threading.Barrier(self.rivals), [], []

        def run() -> None:
            try:
                for number in range(self.rounds):
                    start.wait(60)
                    got.append(act(number))
            except BaseException as error:
                errors.append(error)
                start.abort()
            finally:
                connections.close_all()

        threads = [threading.Thread(target=run) for _ in range(self.rivals)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        if errors:
            raise errors[0]
        return got


def new_key() -> str:
    """Return a key that nobody has used."""
    return f"conformance-{uuid.uuid4()}-"


def raises(kind: type[BaseException], act: Callable[[], object]) -> bool:
    """Tell whether it raises this."""
    try:
        act()
    except kind:
        return True
    return False


def on_thread(act: Callable[[], T]) -> T:
    """Act in another thread, and return what it gives."""
    got: list[T] = []

    def run() -> None:
        try:
            got.append(act())
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return got[0]
