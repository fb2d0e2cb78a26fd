"""What is told to other processes, and when: after the commit, and nothing after a rollback."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from django.db import transaction

from django_ayework import cancel, complete, enqueue, enqueue_many, pause, retry, trigger, work
from django_ayework.flow.maintenance import reclaim
from django_ayework.flow.services import EngineServices
from django_ayework.models import Work
from django_ayework.rules.controls import Scope
from django_ayework.rules.notifications import ANYTHING, Due
from django_ayework.store import claims
from django_ayework.testing import now
from django_ayework.worker.claimer import Claimer
from django_ayework.worker.in_flight import InFlight, give_back
from django_ayework.worker.maintenance import MaintenanceThread
from tests.app.works import add, fail, pay
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@work(name="t.telling.two_steps")
def two_steps(ctx):
    return ctx.continue_with(add(a=1, b=2))


@work(name="t.telling.ages", options=lambda: {"delay": 3600})
def ages():
    pass


ADD = Due(frozenset({("default", "shop.add")}))


def claimed(handle) -> None:
    until = now() + timedelta(minutes=1)
    assert claims.claim("default", {"shop.add": 1}, 1, "w", now(), until)[0].id == handle.id


def test_a_work_is_told_by_its_queue_and_type(carrier):
    enqueue(add(a=1, b=2), queue="mail")
    assert carrier.told("due") == [Due(frozenset({("mail", "shop.add")}))]
    assert {channel for channel, _ in carrier.sent} == {"due"}


def test_nothing_is_told_before_the_commit_and_all_of_it_after(carrier):
    with transaction.atomic():
        enqueue(add(a=1, b=2))
        enqueue(pay(order_id=1), queue="mail")
        assert carrier.sent == []
    assert carrier.told("due") == [ADD, Due(frozenset({("mail", "shop.pay")}))]


def test_a_rollback_tells_nothing(carrier):
    with transaction.atomic():
        enqueue(add(a=1, b=2))
        transaction.set_rollback(True)
    with transaction.atomic(), transaction.atomic():
        enqueue(add(a=1, b=2))
        transaction.set_rollback(True)
    assert carrier.sent == []


@pytest.mark.django_db(transaction=False)
def test_in_a_test_that_never_commits_nothing_is_told_and_no_thread_starts(carrier, drain):
    before = set(threading.enumerate())
    enqueue_many([add(a=1, b=2) for _ in range(10)])
    assert drain().succeeded == 10
    assert carrier.sent == []
    assert set(threading.enumerate()) <= before, "one of before may be on its way out"


def test_a_work_that_starts_within_an_hour_is_told_by_its_moment(carrier):
    enqueue(add(a=1, b=2), delay=3600)
    assert carrier.sent == []
    enqueue(add(a=1, b=2), delay=3000)
    [due] = carrier.told("due")
    assert due.places == frozenset()
    assert due.start == pytest.approx((now() + timedelta(seconds=3000)).timestamp(), abs=60)


def test_what_is_told_of_a_start_does_not_depend_on_the_interval_of_who_tells(carrier, settings):
    settings.AYEWORK = {**settings.AYEWORK, "POLL_INTERVAL": 0.1}
    enqueue(add(a=1, b=2), delay=20)
    assert [due.start is not None for due in carrier.told("due")] == [True]


def test_every_way_to_become_due_is_told(carrier, unhurried):
    later, dead, lost = enqueue(add(a=1, b=2), delay=3600), enqueue(add(a=1, b=2)), enqueue(add(a=1, b=2))
    cancel(dead.id)
    claimed(lost)
    for become_due in (
        lambda: trigger(later.id),
        lambda: retry(dead.id),
        lambda: Work.objects.filter(id=lost.id).update(leased_until=now()) and reclaim(),
    ):
        carrier.sent.clear()
        become_due()
        [due] = carrier.told("due")
        # What was reclaimed waits for a moment before its next attempt.
        assert due == ADD or due.start is not None


def test_controls_let_everybody_look(carrier):
    pause(queue="default")
    assert carrier.told("due") == [ANYTHING]


def test_ends_are_told_by_the_ids_of_works_groups_and_chains(carrier, unhurried):
    handles = enqueue_many([add(a=1, b=2), add(a=3, b=4)], together=True)
    carrier.sent.clear()
    cancel(handles[1].id)
    cancel(handles[0].id)
    told = frozenset().union(*carrier.told("ended"))
    assert told == {handle.id for handle in handles}
    assert carrier.told("revoked") == [{handles[1].id}, {handles[0].id}]


def test_the_end_of_a_chain_is_told_by_its_first_work(carrier, unhurried, drain):
    """Its group goes on."""
    chain, _ = enqueue_many([two_steps(), ages()], together=True)
    drain()
    last = Work.objects.get(type=add.name)
    assert carrier.told("ended") == [{chain.id}, {last.id, chain.id}]


def test_works_that_are_completed_by_hand_are_told_as_revoked(carrier, unhurried):
    handle = enqueue(add(a=1, b=2))
    complete(handle.id, 5)
    assert carrier.told("revoked") == [{handle.id}]
    assert carrier.told("ended") == [{handle.id}]


def test_what_this_process_tells_is_no_news_to_itself(carrier):
    from django_ayework.flow.notify import subscribe_due, subscribe_ended

    heard: list[object] = []
    forget = [subscribe_due(lambda due, message: heard.append(due)), subscribe_ended(heard.append)]
    handle = enqueue(add(a=1, b=2))
    cancel(handle.id)
    eventually(lambda: len(carrier.sent) >= 3)
    for channel, message in carrier.sent:
        carrier.say(channel, message)
    assert heard == []
    carrier.say("due", "scribble")
    assert heard == [ANYTHING]
    for one in forget:
        one()


def test_a_failed_attempt_that_is_tried_again_later_tells_when(carrier, drain, unhurried):
    enqueue(fail())
    carrier.sent.clear()
    time_before = time.time()
    drain(limit=1, raises=False)
    starts = [due.start for due in carrier.told("due") if due.start]
    assert starts and all(start > time_before - 60 for start in starts)


def test_a_work_whose_blocker_has_succeeded_is_told(carrier, unhurried):
    blocker = enqueue(add(a=1, b=2))
    enqueue(pay(order_id=1), blockers=[blocker])
    carrier.sent.clear()
    complete(blocker.id, 5)
    assert carrier.told("due") == [Due(frozenset({("default", "shop.pay")}))]


def test_what_a_worker_gives_back_is_told_to_others(carrier, unhurried):
    claimer, in_flight = Claimer("w", Scope()), InFlight(lambda: None)
    maintenance = MaintenanceThread("w", in_flight, EngineServices())
    enqueue_many([add(a=1, b=2), add(a=1, b=2)])
    first, second = claimer.claim(2)
    in_flight.add([first, second])
    carrier.sent.clear()
    assert give_back("w", [first])
    assert carrier.told("due") == [ADD]
    maintenance.release([second])
    assert carrier.told("due") == [ADD, ADD]
