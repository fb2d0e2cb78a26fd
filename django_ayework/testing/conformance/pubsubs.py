"""The tests of a PubSub."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from django_ayework.ports.pubsub.base import PubSub
from django_ayework.testing.conformance.shared import PATIENCE, in_threads

#: Texts that some ways to send them lose, shorten, or take for others.
AWKWARD_MESSAGES = (" ", "a", "a ", " a", "'", '"', "%s", "\\", "\\n", "null", '["a",null]', "x" * 7000)


class PubSubConformance:
    """The tests of a PubSub that carries messages, for pytest and for unittest; see ``make_pubsub``.

    One in the database needs real transactions: ``TransactionTestCase``, or ``django_db(transaction=True)``.

    Example::

        class TestMyPubSub(PubSubConformance, TestCase):
            def make_pubsub(self):
                return MyPubSub()
    """

    def make_pubsub(self) -> PubSub:
        """Return a PubSub to be tested; each test closes it, and uses channels of its own."""
        raise NotImplementedError("return a PubSub from make_pubsub().")

    def test_a_message_arrives(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            assert stage.arrives(stage.listen("one"), "one")

    def test_a_message_arrives_as_it_was_sent(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            received = stage.listen("one")
            assert all(stage.arrives(received, "one", text) for text in AWKWARD_MESSAGES)

    def test_every_listener_receives_a_message(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            first, second = stage.listen("one"), stage.listen("one")
            assert stage.arrives(first, "one", "both")
            assert stage.arrives(second, "one", "both")

    def test_channels_are_apart(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            one, two = stage.listen("one"), stage.listen("two")
            assert stage.arrives(one, "one", "for one")
            assert stage.arrives(two, "two", "for two")
            assert "for two" not in one
            assert "for one" not in two

    def test_a_channel_may_be_subscribed_to_later(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            assert stage.arrives(stage.listen("one"), "one")
            assert stage.arrives(stage.listen("two"), "two")

    def test_an_ended_subscription_receives_nothing_more(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            gone, stays = list[str](), stage.listen("one")
            unsubscribe = stage.pubsub.subscribe(stage.channel("one"), gone.append)
            assert stage.arrives(gone, "one")
            unsubscribe()
            unsubscribe()
            assert stage.arrives(stays, "one", "after it")
            assert "after it" not in gone

    def test_a_listener_that_raises_disturbs_nobody(self) -> None:
        def raises(message: str) -> None:
            raise ArithmeticError(message)

        with Stage(self.make_pubsub()) as stage:
            stage.pubsub.subscribe(stage.channel("one"), raises)
            received = stage.listen("one")
            assert stage.arrives(received, "one", "first")
            assert stage.arrives(received, "one", "second")

    def test_any_thread_may_publish(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            received = stage.listen("one")
            in_threads(4, lambda number: stage.arrives(received, "one", f"from {number}"))
            assert {f"from {number}" for number in range(4)} <= set(received)

    def test_a_message_that_nobody_listens_to_is_gone(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            stage.pubsub.publish(stage.channel("one"), "before")
            received = stage.listen("one")
            assert stage.arrives(received, "one", "after")
            assert "before" not in received

    def test_it_may_be_used_again_after_it_was_closed(self) -> None:
        with Stage(self.make_pubsub()) as stage:
            before = stage.listen("one")
            assert stage.arrives(before, "one", "before")
            stage.pubsub.close()
            stage.pubsub.close()
            assert stage.arrives(stage.listen("one"), "one", "after")
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
        """Listen to a channel; return the list of its messages."""
        received: list[str] = []
        self.pubsub.subscribe(self.channel(name), received.append)
        return received

    def arrives(self, received: list[str], name: str, message: str = "hello") -> bool:
        """Send a message, again and again as it may be lost, and return whether it arrives."""
        return eventually(
            lambda: self.pubsub.publish(self.channel(name), message), lambda: message in received
        )


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
