"""What is heard from other processes. Nothing depends on it: whoever hears nothing looks now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django_ayework.flow.events import report
from django_ayework.flow.news.outbox import outbox
from django_ayework.heartbeat import Heartbeat
from django_ayework.ports.pubsub import get_pubsub
from django_ayework.ports.pubsub.protocol import is_live
from django_ayework.rules.news import ANSWERED, DUE, ENDED, REVOKED, Due, due_from_text, ids_from_text

Unsubscribe = Callable[[], None]


def hear_due(listener: Callable[[Due, str], object]) -> Unsubscribe:
    """Call this with what becomes due by commits of other processes, and the message that says so.

    Return what ends that.
    """

    def hear(text: str) -> None:
        if due := due_from_text(text, outbox.origin):
            listener(due, text)

    return subscribe(DUE, hear)


def hear_answered(listener: Callable[[frozenset[str]], object]) -> Unsubscribe:
    """Call this with the numbers of messages whose works others have taken."""

    def hear(text: str) -> None:
        if answered := ids_from_text(text, outbox.origin):
            listener(answered)

    return subscribe(ANSWERED, hear)


def hear_ended(listener: Callable[[frozenset[str] | None], object]) -> Unsubscribe:
    """Call this with ids of works, groups and chains that others have ended; None is for any."""
    return subscribe(ENDED, ids_for(listener))


def hear_revoked(listener: Callable[[frozenset[str] | None], object]) -> Unsubscribe:
    """Call this with works that others may have taken from whoever runs them; None is for any."""
    return subscribe(REVOKED, ids_for(listener))


def hears_others() -> bool:
    """Tell whether other processes are heard at the moment, so that there is less need to look."""
    return is_live(get_pubsub())


def call_later(seconds: float, call: Callable[[], object]) -> None:
    """Call this after so many seconds, in the thread that listens if the carrier of wake-ups can do that."""
    by_carrier = getattr(get_pubsub(), "call_later", None)
    if by_carrier is not None:
        by_carrier(seconds, call)
        return
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


def listener() -> Any:
    """Return the thread by which this process hears others, with its heartbeat; None where there is none."""
    pubsub = get_pubsub()
    return pubsub if isinstance(getattr(pubsub, "heartbeat", None), Heartbeat) else None


def rest() -> None:
    """End threads and connections that nobody needs now, rather than soon."""
    outbox.rest()
    let_rest = getattr(get_pubsub(), "rest", None)
    if let_rest is not None:
        let_rest()


def ids_for(listener: Callable[[frozenset[str] | None], object]) -> Callable[[str], None]:
    """Return what reads a message's ids for a listener."""

    def hear(text: str) -> None:
        ids = ids_from_text(text, outbox.origin)
        if ids is None or ids:
            listener(ids)

    return hear


def subscribe(channel: str, listener: Callable[[str], None]) -> Unsubscribe:
    """Subscribe; where that cannot be done, nothing is heard."""
    try:
        return get_pubsub().subscribe(channel, listener)
    except Exception as error:
        report(error, "pubsub", "other processes are not heard, so this one looks for itself")
        return lambda: None
