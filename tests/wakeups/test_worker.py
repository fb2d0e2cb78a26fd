"""What a worker does with messages."""

import threading
from asyncio import CancelledError

import pytest

from django_ayework import enqueue, pause, work
from django_ayework.flow.context_services import EngineServices
from django_ayework.models import WorkerProcess
from django_ayework.rules.controls import Scope
from django_ayework.rules.notifications import ANYTHING, Due, due_to_text, ids_to_text
from django_ayework.testing import now, running_worker
from django_ayework.worker import claimer as module
from django_ayework.worker import maintenance
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.maintenance import MaintenanceThread
from django_ayework.worker.settler import AttemptCounts
from django_ayework.worker.wakeups import WakeUps
from tests.app.works import add
from tests.claiming import claimer_of
from tests.marks import each_database
from tests.processes import PATIENCE, eventually

pytestmark = pytest.mark.vendors("sqlite")
transactional = pytest.mark.django_db(transaction=True)
MAIL = Due(frozenset({("mail", "send")}))
SHOP = Due(frozenset({("default", "shop.add")}))


@pytest.fixture
def claimer(carrier):
    return claimer_of()


@pytest.fixture
def polls(claimer, monkeypatch):
    """One entry per poll."""
    polls, poll = [], claimer.poll
    monkeypatch.setattr(claimer, "poll", lambda: (polls.append(None), poll()))
    return polls


def wakes_for(wake_ups, due):
    wake_ups._wake.clear()
    wake_ups.add(due)
    return wake_ups._wake.is_set()


def test_what_concerns_the_worker_wakes_it_once_and_is_kept_until_it_is_taken(settings):
    wake_ups = WakeUps("w", Scope(queues=("mail",), exclude_types=("draw",)), threading.Event())
    assert not wakes_for(wake_ups, Due(frozenset({("default", "send"), ("mail", "draw")}))), "not served"
    assert wakes_for(wake_ups, MAIL)
    assert not wakes_for(wake_ups, MAIL), "already known"
    start = now().timestamp()
    assert wakes_for(wake_ups, Due(start=start))
    assert wake_ups.take() == MAIL | Due(start=start)
    assert not wake_ups.take()
    assert wakes_for(wake_ups, MAIL)
    assert wakes_for(wake_ups, ANYTHING)
    for interval, wakes in ((0.1, False), (20.0, True)):  # as its own interval would miss the start
        settings.AYEWORK = {"POLL_INTERVAL": interval}
        assert wakes_for(WakeUps("w", Scope(), threading.Event()), Due(start=start + 10)) is wakes


@each_database
@transactional
@pytest.mark.parametrize(("message", "count"), [(SHOP, 0), (ANYTHING, 1)], ids=["known place", "anything"])
def test_a_message_of_a_known_place_is_claimed_without_a_poll(claimer, polls, message, count):
    claimer.claim(1)
    handle = enqueue(add(a=1, b=2))
    if message is SHOP:
        assert claimer.claim(0) == []
    claimer.wake_ups.add(message)
    polls.clear()
    assert [delivery.row.id for delivery in claimer.claim(8)] == [handle.id]
    assert len(polls) == count
    assert claimer.is_idle(), "no more than that is due"


@transactional
def test_a_poll_that_is_due_by_time_is_put_off_once(claimer, polls, monkeypatch):
    claimer.claim(1)
    monkeypatch.setattr(claimer, "poll_is_due", lambda: True)
    polls.clear()
    for expected in (0, 1, 1, 2):
        claimer.wake_ups.add(SHOP)
        claimer.claim(1)
        assert len(polls) == expected


@transactional
def test_a_busy_worker_polls_for_anything_only_now_and_then(claimer, polls, monkeypatch):
    monkeypatch.setattr(module, "POLL_AGAIN_AFTER", 1000.0)
    for number in range(3):
        enqueue(add(a=number, b=2))
    assert len(claimer.claim(1)) == 1
    polls.clear()
    claimer.wake_ups.add(ANYTHING)
    assert (len(claimer.claim(1)), polls) == (1, [])
    monkeypatch.setattr(module, "POLL_AGAIN_AFTER", 0.0)
    assert (len(claimer.claim(1)), polls) == (1, [None]), "it has not forgotten"


def groups(claimer):
    return [(share.queue, share.types) for share in claimer.claim_groups]


@transactional
def test_a_busy_worker_adds_a_published_place_to_its_claim_groups(claimer):
    enqueue(add(a=1, b=2))
    claimer.claim(0)
    before = groups(claimer)
    claimer.note_due(Due(frozenset({("mail", "shop.add")})))
    assert before and set(groups(claimer)) == {*before, ("mail", ("shop.add",))}


@transactional
def test_a_published_place_that_is_paused_or_at_its_limit_is_not_claimed(claimer):
    pause(queue="mail")
    claimer.claim(1)
    claimer.held_back = {"shop.fail"}
    claimer.note_due(Due(frozenset({("mail", "shop.add"), ("default", "shop.fail")})))
    assert groups(claimer) == []


@transactional
@pytest.mark.parametrize(
    ("is_live", "lease", "factor"),
    [(False, 600, 1), (True, 600, module.LONG_REST), (True, 24, 2), (True, 6, 1)],
)
def test_a_worker_with_messages_polls_less_often_but_often_enough_for_leases(
    carrier, settings, claimer, is_live, lease, factor
):
    settings.AYEWORK = {**settings.AYEWORK, "POLL_INTERVAL": 2.0, "LEASE": lease}
    carrier.is_live = is_live
    claimer.held_back = {"shop.add"}
    assert claimer.pause() <= 2.2, "it waits for capacity"
    claimer.held_back = set()
    claimer.claim(1)
    assert 0.9 * 2.0 * factor <= claimer.pause() <= 1.1 * 2.0 * factor
    for seconds in (60, 0.5, 30):
        claimer.note_due(Due(start=now().timestamp() + seconds))
    assert claimer.pause() <= 0.5, "it waits for the earliest start"


@transactional
def test_a_worker_that_only_awaits_ids_polls_soon_after_a_message_without_a_place(carrier, settings, claimer):
    settings.AYEWORK = {**settings.AYEWORK, "POLL_INTERVAL": 60.0}
    claimer.claim(1)
    claimer.arrivals = Nothing()
    claimer.wake_ups.add(ANYTHING)
    assert claimer.claim(1) == []
    assert claimer.pause() <= module.POLL_AGAIN_AFTER


class Nothing:
    """Arrivals that never come."""

    def claim(self, *args):
        return []

    def without_pushed(self, lanes, controls):
        return []


@transactional
def test_a_worker_listens_from_open_until_close(carrier):
    wake, revoked = threading.Event(), []
    wake_ups = WakeUps("w", Scope(), wake)
    wake_ups.open(revoked.append)
    carrier.deliver("due", due_to_text(MAIL, "elsewhere"))
    carrier.deliver("revoked", ids_to_text(["a"], "elsewhere"))
    assert (wake.is_set(), wake_ups.take(), revoked) == (True, MAIL, [frozenset({"a"})])
    wake_ups.close()
    wake.clear()
    carrier.deliver("due", due_to_text(MAIL, "elsewhere"))
    enqueue(add(a=1, b=2))
    assert (wake.is_set(), revoked) == (False, [frozenset({"a"})])
    assert carrier._listeners.channels() == set()


@transactional
@pytest.mark.parametrize("kind", [ConnectionError, CancelledError])
@pytest.mark.parametrize("begins", [True, False])
def test_a_subscription_that_cannot_begin_or_be_ended_keeps_neither_a_worker_nor_a_wait_from_ending(
    carrier, reported, monkeypatch, kind, begins
):
    def refuse() -> None:
        raise kind("no way")

    monkeypatch.setattr(carrier, "subscribe", lambda channel, listener: refuse if begins else refuse())
    handle = enqueue(add(a=1, b=2))
    with running_worker():
        assert handle.result(timeout=PATIENCE) == 3
    assert WorkerProcess.objects.get().stopped_at is not None
    assert set(reported) == {("no way", "pubsub")}


@each_database
@transactional
def test_a_revocation_is_checked_against_the_database(carrier, monkeypatch):
    """A message may be late or wrong: a work that is still leased runs on."""
    stage, seen, looked = threading.Event(), [], []
    abort_lost = maintenance.abort_lost

    @work(name="wakeups.doubted")
    def doubted(ctx):
        eventually(stage.is_set)
        seen.append(ctx.signal.reason)

    def note(found):
        looked.append(len(found))
        abort_lost(found)

    with running_worker():
        handle = enqueue(doubted())
        eventually(lambda: handle.state().status == "running")
        monkeypatch.setattr(maintenance, "abort_lost", note)
        carrier.deliver("revoked", ids_to_text([handle.id], "elsewhere"))
        eventually(lambda: 1 in looked)
        carrier.deliver("revoked", "scribble")
        eventually(lambda: looked.count(1) > 1)
        stage.set()
        handle.result(timeout=PATIENCE)
    assert seen == [None]


def test_maintenance_is_woken_by_works_in_flight_only(carrier, monkeypatch):
    thread = MaintenanceThread("w", InFlight(lambda: None), EngineServices(), AttemptCounts())
    monkeypatch.setattr(thread.in_flight, "ids", lambda: {"ours"})
    for revoked, wakes in (
        (frozenset({"ours"}), True),
        (frozenset({"another's"}), False),
        (None, False),  # anything may have happened: it polls at its next turn
    ):
        thread.wake.clear()
        thread.check_revoked(revoked)
        assert thread.wake.is_set() is wakes
