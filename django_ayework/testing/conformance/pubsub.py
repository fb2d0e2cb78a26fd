"""What every PubSub must do, as tests to inherit from."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

from django.db import connections

from django_ayework.ports.pubsub.base import PubSub

#: Texts that some ways to send them lose, shorten, or take for others.
AWKWARD = (" ", "a", "a ", " a", "'", '"', "%s", "\\", "\\n", "null", '["a",null]', "x" * 7000)
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
            assert all(stage.is_heard(heard, "one", text) for text in AWKWARD)

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
