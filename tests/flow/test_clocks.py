"""What a process counts from now by hand, on a host whose clock is hours behind that of the database."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_ayework import cancel, completing, dependency, enqueue, retry, schedule, start_bulk_action, work
from django_ayework.define.schedules import schedules
from django_ayework.flow.schedules import set_paused
from django_ayework.models import BulkAction, Schedule, Work
from django_ayework.ports.kv import DatabaseStore
from django_ayework.store import database
from django_ayework.store.database import clock
from django_ayework.testing import drain, tick
from tests.app.works import add
from tests.flow.kit import ONCE

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("undeclared")]
HOURS = timedelta(hours=5)


@work(name="t.flow.brief", expires=60)
def brief() -> None: ...


@work(name="t.flow.fails_briefly", expires=60)
def fails_briefly() -> None:
    raise RuntimeError("no luck")


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Callable[[], datetime]:
    """Let the host's clock be behind from the call on; return the database's time."""

    def begin() -> datetime:
        monkeypatch.setattr(database, "database_now", lambda: datetime.now(UTC) + HOURS)
        clock.reset()
        return datetime.now(UTC) + HOURS

    return begin


def of_type(name: str) -> Any:
    return Work.objects.get(type=name)


def test_a_work_that_is_retried_has_its_time_to_expire_again(wrong):
    handle = enqueue(fails_briefly(), retry=ONCE)
    drain(raises=False)
    moment = wrong()
    retry(handle.id)
    found = of_type("t.flow.fails_briefly")
    assert min(found.run_at, found.deadline - timedelta(seconds=60)) >= moment


def test_what_a_completed_work_queues_has_its_time_to_expire(wrong):
    handle = enqueue(add(a=1, b=2), delay=3600)
    moment = wrong()
    with completing(handle.id) as context:
        context.queue([brief()])
    assert of_type("t.flow.brief").deadline >= moment + timedelta(seconds=60)


def test_what_a_gate_queues_that_opens_as_it_is_queued_has_its_time_to_expire(wrong):
    handle = enqueue(add(a=1, b=2))
    drain()
    moment = wrong()
    enqueue(dependency(on=[handle], queue=[brief()]))
    assert of_type("t.flow.brief").deadline >= moment + timedelta(seconds=60)


def test_what_a_gate_queues_that_a_cancelled_work_opens_has_its_time_to_expire(wrong):
    handle = enqueue(add(a=1, b=2), delay=3600)
    enqueue(dependency(on=[handle], queue=[brief()], condition="all-done"))
    moment = wrong()
    cancel(handle.id)
    assert of_type("t.flow.brief").deadline >= moment + timedelta(seconds=60)


def test_a_bulk_action_acts_on_all_works_that_have_ended_before_it(wrong):
    moment = wrong()
    row = start_bulk_action("retry", {"status": "dead"})
    assert row.until >= moment
    assert BulkAction.objects.get().next_at >= moment


def test_a_schedule_that_goes_on_after_a_pause_fires_nothing_of_the_pause(wrong):
    schedule("* * * * *", name="t.flow.minutely", run=brief)
    try:
        tick()
        row = Schedule.objects.get()
        set_paused(row.pk, True)
        moment = wrong()
        set_paused(row.pk, False)
        assert Schedule.objects.get().next_at >= moment
    finally:
        schedules.unregister("t.flow.minutely")


def test_an_entry_of_the_store_is_kept_for_its_time(wrong):
    wrong()
    store = DatabaseStore()
    store.set("key", "value", ttl=60)
    clock.measure()
    assert store.get("key") == "value"
