"""What is published to other processes, when, and by which thread."""

import threading
import time
from asyncio import CancelledError
from datetime import timedelta

import pytest
from django.db import transaction

from django_ayework import (
    cancel,
    complete,
    enqueue,
    enqueue_many,
    pause,
    retry,
    start_bulk_action,
    trigger,
    work,
)
from django_ayework.flow import notify, sending
from django_ayework.flow.bulk_actions import resume, stop
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.maintenance import reclaim
from django_ayework.flow.notify import sender, subscribe_due, subscribe_ended
from django_ayework.models import Work
from django_ayework.rules.notifications import ANYTHING, Due
from django_ayework.store import claims
from django_ayework.testing import now
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.leases import release
from django_ayework.worker.maintenance import MaintenanceThread
from django_ayework.worker.settler import AttemptCounts
from tests.app.works import add, fail, pay
from tests.claiming import claimer_of
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("sqlite")]
ADD = Due(frozenset({("default", "shop.add")}))
PAY = Due(frozenset({("default", "shop.pay")}))


@work(name="t.publishing.two_steps")
def two_steps(ctx):
    return ctx.continue_with(add(a=1, b=2))


@work(name="t.publishing.ages", options=lambda: {"delay": 3600})
def ages():
    pass


def enqueue_add(**options):
    return enqueue(add(a=1, b=2), **options)


@each_database
def test_due_works_are_published_after_the_commit_by_queue_and_type(carrier):
    with transaction.atomic():
        enqueue_add()
        transaction.set_rollback(True)
    with transaction.atomic(), transaction.atomic():
        enqueue_add()
        transaction.set_rollback(True)
    with transaction.atomic():
        enqueue_add()
        enqueue(pay(order_id=1), queue="mail")
        assert carrier.sent == []
    assert carrier.received("due") == [ADD, Due(frozenset({("mail", "shop.pay")}))]
    assert {channel for channel, _ in carrier.sent} == {"due"}


def test_a_thread_that_the_system_refused_is_started_for_the_next_message(carrier, unhurried, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    carrier.is_quick = False
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        enqueue_add()
    enqueue(pay(order_id=1))
    eventually(lambda: carrier.received("due"))
    assert carrier.received("due") == [ADD | PAY]


@pytest.mark.django_db(transaction=False)
def test_a_test_that_never_commits_publishes_nothing_and_starts_no_thread(carrier, drain):
    before = set(threading.enumerate())
    enqueue_many([add(a=1, b=2) for _ in range(10)])
    assert drain().succeeded == 10
    assert carrier.sent == []
    assert set(threading.enumerate()) <= before, "one of before may be on its way out"


@pytest.mark.parametrize("interval", [30, 0.1])
def test_a_start_within_an_hour_is_published_whatever_the_poll_interval(carrier, settings, interval):
    settings.AYEWORK = {**settings.AYEWORK, "POLL_INTERVAL": interval}
    enqueue_add(delay=3600)
    assert carrier.sent == []
    enqueue_add(delay=3000)
    [due] = carrier.received("due")
    assert due.places == frozenset()
    assert due.start == pytest.approx((now() + timedelta(seconds=3000)).timestamp(), abs=60)


@each_database
def test_every_way_to_become_due_is_published(carrier, unhurried):
    later, dead, lost = enqueue_add(delay=3600), enqueue_add(), enqueue_add()
    blocker = enqueue(fail())
    enqueue(pay(order_id=1), blockers=[blocker])
    cancel(dead.id)
    stopped = start_bulk_action("retry", {"status": "dead"})
    stop(stopped.id)
    [claimed] = claims.claim("default", {"shop.add": 1}, 1, claims.new_lease("w"))
    assert claimed.id == lost.id
    for become_due, expected in (
        (lambda: trigger(later.id), ADD),
        (lambda: retry(dead.id), ADD),
        (lambda: complete(blocker.id, 5), PAY),
        (lambda: retry(blocker.id, again=True), Due(frozenset({("default", "shop.fail")}))),
        (lambda: pause(queue="default"), ANYTHING),
        (lambda: start_bulk_action("retry", {"status": "dead"}), ANYTHING),
        (lambda: resume(stopped.id), ANYTHING),
        (lambda: Work.objects.filter(id=lost.id).update(leased_until=now()) and reclaim(), None),
    ):
        carrier.sent.clear()
        become_due()
        [due] = carrier.received("due")
        # A reclaimed work waits for a moment before its next attempt.
        assert due == expected or (expected is None and (due == ADD or due.start is not None))


def test_ends_are_published_by_the_ids_of_works_and_groups(carrier, unhurried):
    handles = enqueue_many([add(a=1, b=2), add(a=3, b=4)], together=True)
    alone = enqueue_add()
    carrier.sent.clear()
    cancel(handles[1].id)
    cancel(handles[0].id)
    assert frozenset().union(*carrier.received("ended")) == {handle.id for handle in handles}
    complete(alone.id, 5)
    assert carrier.received("revoked") == [{handles[1].id}, {handles[0].id}, {alone.id}]
    assert carrier.received("ended")[-1] == {alone.id}


@each_database
def test_the_end_of_a_chain_is_published_by_its_first_work(carrier, unhurried, drain):
    chain, _ = enqueue_many([two_steps(), ages()], together=True)  # the group goes on
    drain()
    last = Work.objects.get(type=add.name)
    assert carrier.received("ended") == [{chain.id}, {last.id, chain.id}]


def test_a_process_ignores_its_own_messages(carrier):
    heard = []
    forget = [subscribe_due(lambda due, message: heard.append(due)), subscribe_ended(heard.append)]
    cancel(enqueue_add().id)
    eventually(lambda: len(carrier.sent) >= 3)
    for channel, message in carrier.sent:
        carrier.deliver(channel, message)
    assert heard == []
    carrier.deliver("due", "scribble")
    assert heard == [ANYTHING]
    for one in forget:
        one()


def test_a_failed_attempt_publishes_the_start_of_the_next(carrier, drain, unhurried):
    enqueue(fail())
    carrier.sent.clear()
    time_before = time.time()
    drain(limit=1, raises=False)
    starts = [due.start for due in carrier.received("due") if due.start]
    assert starts and all(start > time_before - 60 for start in starts)


def test_works_that_a_worker_gives_back_are_published(carrier, unhurried):
    claimer, in_flight = claimer_of(), InFlight(lambda: None)
    maintenance = MaintenanceThread("w", in_flight, EngineServices(), AttemptCounts())
    enqueue_many([add(a=1, b=2), add(a=1, b=2)])
    first, second = claimer.claim(2)
    in_flight.add([second])
    carrier.sent.clear()
    assert not release([first], "w")
    assert carrier.received("due") == [ADD]
    maintenance.release_unstarted()
    assert carrier.received("due") == [ADD, ADD]


def test_the_first_messages_are_sent_by_the_committing_thread_and_a_flood_together(carrier, monkeypatch):
    monkeypatch.setattr(sending, "INTERVAL", 0.2)  # on a busy machine works do not come any faster
    handles = [enqueue_add(queue=f"q{number}") for number in range(50)]

    def places():
        return [place for due in carrier.received("due") for place in due.places]

    eventually(lambda: ("q49", "shop.add") in places())
    assert sorted(places()) == sorted((f"q{number}", "shop.add") for number in range(50))
    assert len(carrier.sent) < len(handles)
    assert [len(due.places) for due in carrier.received("due")[: sending.BURST]] == [1] * sending.BURST
    assert carrier.threads == {threading.current_thread().name, "ayework-sender"}


def test_too_many_ids_are_published_as_any(carrier, unhurried):
    handles = enqueue_many([add(a=1, b=2) for _ in range(110)])
    carrier.sent.clear()
    with transaction.atomic():
        for handle in handles:
            cancel(handle.id)
    eventually(lambda: carrier.sent)
    batch = notify.PendingNotifications()
    batch.add(notify.Notification(ended=[handle.id for handle in handles]))
    batch.add(notify.Notification(ended=["one more"]))
    assert batch.is_flood
    assert batch.messages("here") == [("ended", notify.ids_to_text(None, "here"))]


def test_a_hanging_pubsub_blocks_nobody_and_its_thread_ends_when_idle(carrier, monkeypatch):
    monkeypatch.setattr(sending, "IDLE", 0.05)
    carrier.is_quick = False
    carrier.hang()
    assert len([enqueue_add() for _ in range(20)]) == 20
    assert carrier.sent == []
    thread = sender._thread
    assert thread is not None
    carrier.open()
    thread.join(10)
    assert not thread.is_alive()
    assert sender._thread is None
    assert carrier.sent
    carrier.sent.clear()
    enqueue_add()
    eventually(lambda: carrier.sent)


def test_a_pubsub_that_reaches_nobody_is_not_used(carrier):
    carrier.reaches_others = False
    enqueue_add()
    assert (carrier.tries, sender._thread) == (0, None)


@pytest.mark.parametrize("kind", [ConnectionError, CancelledError])
def test_a_failure_to_publish_raises_nowhere_and_is_reported_once(carrier, reported, monkeypatch, kind):
    """A library that works with asyncio raises CancelledError, which is no Exception."""
    monkeypatch.setattr(sending, "PAUSE_AFTER_FAILURE", 0.01)
    carrier.error = kind("no way")
    handles = [enqueue_add() for _ in range(3)]
    eventually(lambda: carrier.tries > 1)
    assert [handle.state().status for handle in handles] == ["pending"] * 3
    assert reported == [("no way", "pubsub")]
    carrier.error = None
    enqueue_add()
    eventually(lambda: carrier.sent and not sender._is_failing)
    carrier.error = kind("no way again")
    enqueue_add()
    eventually(lambda: len(reported) == 2)
    assert reported == [("no way", "pubsub"), ("no way again", "pubsub")]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_signal_that_ends_the_process_while_it_publishes_is_obeyed(carrier, reported, kind):
    """Handlers of signals raise in the main thread, wherever it is."""
    carrier.error = kind()
    with pytest.raises(kind):
        enqueue_add()
    assert [phase for _, phase in reported] == ["pubsub"]
    assert Work.objects.get().status == "pending"


@pytest.mark.parametrize("reason", ["slow", "failed before"])
def test_the_committing_thread_does_not_publish(carrier, reason):
    carrier.is_quick = reason != "slow"
    sender._is_failing = reason == "failed before"
    enqueue_add()
    eventually(lambda: carrier.sent)
    assert carrier.threads == {"ayework-sender"}


def test_pending_messages_are_sent_as_the_process_ends(carrier):
    carrier.is_quick = False
    carrier.hang()
    enqueue_add()
    eventually(lambda: carrier.tries == 1)  # the thread is busy
    enqueue(pay(order_id=1))
    carrier.open()
    sender.stop()
    assert PAY in carrier.received("due")


def test_a_sending_thread_that_is_stuck_is_reported_once_and_goes_on(carrier, reported, monkeypatch):
    """A web process has no watchdog, and its other messages wait for this thread."""
    monkeypatch.setattr(sending, "STALL", 0.0)
    carrier.is_quick = False
    carrier.hang()
    enqueue_add()
    eventually(lambda: carrier.tries == 1)
    for _ in range(3):
        enqueue(pay(order_id=1))
    assert reported == [("the thread 'ayework-sender' has been sending for 0 s", "pubsub")]
    carrier.open()
    eventually(lambda: PAY in carrier.received("due") and not sender._is_failing)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_sending_thread_that_has_died_is_started_again(carrier, reported, monkeypatch):
    def cannot_close() -> None:
        raise RuntimeError("the driver cannot close")

    carrier.is_quick = False
    carrier.error = ConnectionError("no way")
    with monkeypatch.context() as patch:
        patch.setattr(sending, "close_all_connections", cannot_close)
        enqueue_add()
        thread = sender._thread
        assert thread is not None
        thread.join(10)
        assert not thread.is_alive()
    carrier.error = None
    enqueue(pay(order_id=1))
    eventually(lambda: PAY in carrier.received("due"))
