"""What a worker makes of what it is told."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_ayework import enqueue, limit, work
from django_ayework.define.context import AbortReason
from django_ayework.flow.services import EngineServices
from django_ayework.rules.controls import Scope
from django_ayework.rules.notifications import ANYTHING, Due, due_to_text, ids_to_text
from django_ayework.testing import now, running_worker
from django_ayework.worker import claimer as module
from django_ayework.worker import maintenance
from django_ayework.worker.claimer import Claimer
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.maintenance import MaintenanceThread
from django_ayework.worker.threads import WakeEvent
from django_ayework.worker.wakeups import DueInbox, Fleet, WakeUps
from tests.app.works import add
from tests.processes import PATIENCE, eventually

transactional = pytest.mark.django_db(transaction=True)
MAIL = Due(frozenset({("mail", "send")}))


@pytest.fixture
def claimer(carrier: Any) -> Claimer:
    return Claimer("w", Scope())


@pytest.fixture
def looks(claimer: Claimer, monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry per look around."""
    looks: list[None] = []
    poll = claimer.poll
    monkeypatch.setattr(claimer, "poll", lambda: (looks.append(None), poll()))
    return looks


def test_what_was_told_is_kept_until_it_is_taken():
    told = DueInbox(Scope())
    assert told.add(MAIL)
    assert not told.add(MAIL), "it is no news"
    start = now().timestamp()
    assert told.add(Due(start=start))
    assert told.take() == MAIL | Due(start=start)
    assert not told.take()
    assert told.add(MAIL)


def test_a_worker_is_not_concerned_by_what_it_does_not_serve():
    told = DueInbox(Scope(queues=("mail",), exclude_types=("draw",)))
    assert not told.add(Due(frozenset({("default", "send"), ("mail", "draw")})))
    assert told.add(MAIL)
    assert told.add(ANYTHING)


@pytest.mark.parametrize(("interval", "wakes"), [(0.1, False), (20.0, True)])
def test_a_worker_wakes_for_a_start_that_its_own_interval_would_miss(settings, interval, wakes):
    settings.AYEWORK = {"POLL_INTERVAL": interval}
    assert DueInbox(Scope()).add(Due(start=now().timestamp() + 10)) is wakes


@transactional
def test_what_is_told_is_claimed_without_a_look(claimer, looks):
    claimer.claim(1)
    looks.clear()
    handle = enqueue(add(a=1, b=2))
    assert claimer.claim(0) == []
    claimer.inbox.add(Due(frozenset({("default", "shop.add")})))
    looks.clear()
    assert [delivery.row.id for delivery in claimer.claim(8)] == [handle.id]
    assert looks == []
    assert claimer.is_idle(), "it had no more than that"


@transactional
def test_a_look_that_is_due_by_time_is_put_off_once(claimer, looks, monkeypatch):
    claimer.claim(1)
    monkeypatch.setattr(claimer, "poll_is_due", lambda: True)
    looks.clear()
    for expected in (0, 1, 1, 2):
        claimer.inbox.add(Due(frozenset({("default", "shop.add")})))
        claimer.claim(1)
        assert len(looks) == expected


@transactional
def test_anything_may_be_due_means_look(claimer, looks):
    claimer.claim(1)
    handle = enqueue(add(a=1, b=2))
    looks.clear()
    claimer.inbox.add(ANYTHING)
    assert [delivery.row.id for delivery in claimer.claim(8)] == [handle.id]
    assert looks == [None]


@transactional
def test_a_busy_worker_looks_for_anything_only_now_and_then(claimer, looks, monkeypatch):
    """On SQLite each of its own commits is such news."""
    monkeypatch.setattr(module, "POLL_AGAIN_AFTER", 1000.0)
    for number in range(3):
        enqueue(add(a=number, b=2))
    assert len(claimer.claim(1)) == 1
    looks.clear()
    claimer.inbox.add(ANYTHING)
    assert len(claimer.claim(1)) == 1
    assert looks == []
    monkeypatch.setattr(module, "POLL_AGAIN_AFTER", 0.0)
    assert len(claimer.claim(1)) == 1
    assert looks == [None], "it has not forgotten"


@transactional
def test_a_busy_worker_serves_what_it_is_told_beside_what_it_knows(claimer):
    enqueue(add(a=1, b=2))
    claimer.claim(0)
    before = claimer.claim_groups
    claimer.note_due(Due(frozenset({("mail", "shop.add")})))
    assert {(share.queue, share.types) for share in claimer.claim_groups} == {
        *((share.queue, share.types) for share in before),
        ("mail", ("shop.add",)),
    }


@transactional
def test_what_is_paused_or_at_its_limit_is_not_claimed_because_it_is_told(claimer):
    from django_ayework import pause

    pause(queue="mail")
    claimer.claim(1)
    claimer.held_back = {"shop.fail"}
    claimer.note_due(Due(frozenset({("mail", "shop.add"), ("default", "shop.fail")})))
    assert claimer.claim_groups == []


def test_the_next_start_is_the_earliest_that_is_told(claimer):
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for start, expected in (
        (noon, noon),
        (noon + timedelta(hours=1), noon),
        (noon - timedelta(hours=1),) * 2,
    ):
        claimer.note_due(Due(start=start.timestamp()))
        assert claimer.next_start == expected


@transactional
@pytest.mark.parametrize(
    ("is_live", "lease", "factor"),
    [(False, 600, 1), (True, 600, module.LONG_REST), (True, 24, 2), (True, 6, 1)],
)
def test_an_idle_worker_that_hears_others_rests_longer_but_not_too_long_for_leases(
    carrier, settings, claimer, is_live, lease, factor
):
    settings.AYEWORK = {**settings.AYEWORK, "POLL_INTERVAL": 2.0, "LEASE": lease}
    carrier.is_live = is_live
    claimer.claim(1)
    assert 0.9 * 2.0 * factor <= claimer.pause() <= 1.1 * 2.0 * factor


@transactional
def test_a_worker_that_waits_for_room_rests_no_longer_than_a_poll(carrier, settings, claimer):
    settings.AYEWORK = {**settings.AYEWORK, "POLL_INTERVAL": 2.0}
    carrier.is_live = True
    claimer.held_back = {"shop.add"}
    assert claimer.pause() <= 2.2
    claimer.held_back = set()
    claimer.next_start = now() + timedelta(seconds=0.5)
    assert claimer.pause() <= 0.5


@transactional
def test_a_worker_hears_from_when_it_opens_until_it_closes(carrier):
    told, wake, doubts = DueInbox(Scope()), WakeEvent(), []
    waking = WakeUps(told, Fleet("w"), wake, doubts.append)
    waking.open()
    carrier.say("due", due_to_text(MAIL, "elsewhere"))
    carrier.say("revoked", ids_to_text(["a"], "elsewhere"))
    assert (wake.is_set(), told.take(), doubts) == (True, MAIL, [frozenset({"a"})])
    waking.close()
    wake.clear()
    carrier.say("due", due_to_text(MAIL, "elsewhere"))
    enqueue(add(a=1, b=2))
    assert (wake.is_set(), doubts) == (False, [frozenset({"a"})])
    assert carrier._listeners.channels() == set()


@transactional
def test_doubts_are_settled_by_the_database_not_by_the_message(carrier, monkeypatch):
    """A message may be old, or not true at all: a work that is still ours runs on."""
    stage = threading.Event()
    seen: list[AbortReason | None] = []

    @work(name="wakeups.doubted")
    def doubted(ctx):
        eventually(stage.is_set)
        seen.append(ctx.signal.reason)

    with running_worker():
        handle = enqueue(doubted())
        eventually(lambda: handle.state().status == "running")
        looked: list[int] = []
        abort_lost = maintenance.abort_lost
        monkeypatch.setattr(
            maintenance, "abort_lost", lambda found: (looked.append(len(found)), abort_lost(found))
        )
        carrier.say("revoked", ids_to_text([handle.id], "elsewhere"))
        eventually(lambda: 1 in looked)
        carrier.say("revoked", "scribble")
        eventually(lambda: looked.count(1) > 1)
        stage.set()
        handle.result(timeout=PATIENCE)
    assert seen == [None]


def test_maintenance_is_woken_by_what_it_holds_and_by_nothing_else(carrier, monkeypatch):
    thread = MaintenanceThread("w", InFlight(lambda: None), EngineServices())
    monkeypatch.setattr(thread.in_flight, "ids", lambda: {"ours"})
    thread.check_revoked(frozenset({"ours"}))
    assert thread.wake.is_set()
    assert thread._revoked == {"ours"}
    thread.wake.clear()
    thread.check_revoked(frozenset({"another's"}))
    assert not thread.wake.is_set()
    thread.check_revoked(None)
    assert not thread.wake.is_set(), "anything may have happened: it looks at its next turn"
    assert thread._revoked is None


@transactional
def test_a_worker_closes_what_nobody_else_needs(settings):
    settings.AYEWORK = {}
    before = set(threading.enumerate())
    with running_worker():
        enqueue(add(a=1, b=2)).result(timeout=PATIENCE)
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in names if name.startswith("ayework-") and name != "ayework-direct"}


@transactional
def test_a_change_of_limits_is_seen_at_once(carrier, settings):
    with running_worker() as worker:
        eventually(lambda: worker._claimer._controls_version is not None)
        limit("shop.add", max_running=3)
        eventually(lambda: worker._claimer.controls.of("shop.add").max_running == 3)
