"""The outbox: it tells shortly, much at once, and without keeping anybody."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction

from django_ayework import cancel, enqueue, enqueue_many
from django_ayework.flow import notify
from django_ayework.flow.notify import sender
from django_ayework.rules.notifications import Due
from tests.app.works import add, pay
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)

ADD = Due(frozenset({("default", "shop.add")}))


def test_the_first_messages_are_sent_by_the_committing_thread_and_a_flood_together(carrier):
    handles = [enqueue(add(a=number, b=0), queue=f"q{number}") for number in range(200)]
    eventually(lambda: set().union(*(due.places for due in carrier.told("due"))) >= {("q199", "shop.add")})
    places = [place for due in carrier.told("due") for place in due.places]
    assert sorted(places) == sorted((f"q{number}", "shop.add") for number in range(200))
    assert len(carrier.sent) < len(handles)
    assert [len(due.places) for due in carrier.told("due")[: notify.BURST]] == [1] * notify.BURST
    assert carrier.threads == {threading.current_thread().name, "ayework-sender"}


def test_what_still_waits_to_be_told_says_it_for_later_works_too(carrier, monkeypatch):
    monkeypatch.setattr(notify, "INTERVAL", 1000.0)
    monkeypatch.setattr(notify, "BURST", 1)
    for _ in range(4):
        enqueue(add(a=1, b=2))
    assert carrier.told("due") == [ADD]
    enqueue(pay(order_id=1))
    sender.flush()
    assert carrier.told("due") == [ADD, ADD | Due(frozenset({("default", "shop.pay")}))]


def test_too_many_ids_are_told_as_any(carrier, unhurried):
    handles = enqueue_many([add(a=1, b=2) for _ in range(150)])
    carrier.sent.clear()
    with transaction.atomic():
        for handle in handles:
            cancel(handle.id)
    eventually(lambda: carrier.sent)
    batch = notify.Batch()
    batch.add(notify.Notification(ended=[handle.id for handle in handles]))
    batch.add(notify.Notification(ended=["one more"]))
    assert batch.is_flood
    assert [channel for channel, _ in batch.messages("here")] == ["ended"]
    assert notify.ids_to_text(None, "here") == batch.messages("here")[0][1]


def test_the_thread_ends_when_there_is_nothing_to_tell(carrier, monkeypatch):
    monkeypatch.setattr(notify, "IDLE", 0.05)
    carrier.is_quick = False
    carrier.hang()
    enqueue(add(a=1, b=2))
    thread = sender._thread
    assert thread is not None
    carrier.open()
    thread.join(10)
    assert not thread.is_alive()
    assert sender._thread is None
    carrier.sent.clear()
    enqueue(add(a=1, b=2))
    eventually(lambda: carrier.sent)


def test_a_carrier_that_is_slow_is_never_met_by_the_committing_thread(carrier):
    carrier.is_quick = False
    enqueue(add(a=1, b=2))
    eventually(lambda: carrier.sent)
    assert carrier.threads == {"ayework-sender"}


def test_a_carrier_that_reaches_nobody_is_left_alone(carrier):
    carrier.reaches_others = False
    enqueue(add(a=1, b=2))
    assert carrier.tries == 0
    assert sender._thread is None


def test_failing_to_tell_raises_nowhere_and_is_reported_once_until_it_works_again(
    carrier, reported, monkeypatch
):
    monkeypatch.setattr(notify, "PAUSE_AFTER_FAILURE", 0.01)
    carrier.error = ConnectionError("no way")
    handles = [enqueue(add(a=1, b=2)) for _ in range(3)]
    eventually(lambda: carrier.tries > 1)
    for handle in handles:
        assert handle.state().status == "pending"
    assert reported == [("no way", "pubsub")]
    carrier.error = None
    enqueue(add(a=1, b=2))
    eventually(lambda: carrier.sent and not sender._is_failing)
    carrier.error = ConnectionError("no way again")
    enqueue(add(a=1, b=2))
    eventually(lambda: len(reported) == 2)
    assert reported == [("no way", "pubsub"), ("no way again", "pubsub")]


def test_after_a_failure_the_committing_thread_does_not_try(carrier):
    sender._is_failing = True
    enqueue(add(a=1, b=2))
    eventually(lambda: carrier.sent)
    assert carrier.threads == {"ayework-sender"}


def test_a_thread_that_hangs_keeps_nobody(carrier):
    carrier.is_quick = False
    carrier.hang()
    handles = [enqueue(add(a=1, b=2)) for _ in range(20)]
    assert len(handles) == 20
    assert carrier.sent == []
    carrier.open()
    eventually(lambda: carrier.sent)


def test_what_is_left_is_sent_as_the_process_ends(carrier):
    carrier.is_quick = False
    carrier.hang()
    enqueue(add(a=1, b=2))
    eventually(lambda: carrier.tries == 1)  # the thread is busy
    enqueue(pay(order_id=1))
    carrier.open()
    sender.flush()
    assert Due(frozenset({("default", "shop.pay")})) in carrier.told("due") or eventually(
        lambda: len(carrier.told("due")) == 2
    )
