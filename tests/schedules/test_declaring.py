"""``schedule()``: its arguments and its refusals; and how rows follow the declarations."""

import functools
import logging
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.core.checks import ERROR
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from django_ayework import CronError, batch_work, dependency, schedule, work
from django_ayework.checks import check_names
from django_ayework.define.schedules import DeclaredSchedule, schedules
from django_ayework.errors import ImproperWork, InvalidOption
from django_ayework.flow import schedules as flow_schedules
from django_ayework.flow.maintenance import FIRINGS_KEPT, prune_others
from django_ayework.flow.schedules import sync
from django_ayework.models import Firing, Schedule
from django_ayework.store.schedules import soonest
from django_ayework.testing import now, tick, time_travel
from django_ayework.testing.factories import FiringFactory, ScheduleFactory
from django_ayework.worker.maintenance import Scheduler
from tests.app.works import add, expire_carts, fail, notify
from tests.races.holding import at_once, transaction_elsewhere
from tests.schedules.works import note


def plain() -> None:
    """Queue nothing."""


async def later() -> None:
    """Be async."""


def test_a_function_is_decorated_and_stays_itself():
    def nightly():
        return add(a=1, b=2)

    declare = schedule("0 3 * * *", name="nightly", tz="Europe/Paris", overlap="skip", catch_up="all")
    assert declare(nightly) is nightly
    declared = schedules.find("nightly")
    assert declared is not None
    assert (declared.kind, declared.cron, declared.tz) == ("cron", "0 3 * * *", "Europe/Paris")
    assert (declared.overlap, declared.catch_up, declared.dst) == ("skip", "all", "skip")
    assert declared.function.endswith("nightly")
    assert schedule(name="odd", next=lambda now: now + timedelta(minutes=7), run=plain).kind == "next"


def test_a_function_is_declared_by_a_call_and_cancelled():
    declared = schedule(name="tick", every=timedelta(minutes=1), run=lambda: add(a=1, b=2), jitter=3)
    assert isinstance(declared, DeclaredSchedule)
    assert (declared.kind, declared.every, declared.jitter) == ("every", 60.0, 3.0)
    assert (declared.overlap, declared.catch_up, declared.dst) == ("allow", "last", "skip")
    second = schedule(name="tick", every=30, run=plain)
    declared.cancel()
    assert schedules.find("tick") is second
    second.cancel()
    second.cancel()
    assert "tick" not in schedules.names()


@pytest.mark.parametrize(
    ("run", "function"),
    [
        (add(a=1, b=2), "shop.add"),
        (fail, "shop.fail"),
        (notify(order_id=1), "shop.notify"),
        (plain, f"{__name__}.plain"),
    ],
)
def test_works_and_functions_can_be_run(run, function):
    declared = schedule(name="given", every=60, run=run)
    assert (declared.name, declared.function) == ("given", function)
    if run is fail:
        assert schedule(every=60, run=fail).name == function, "a type has its own name"


def test_dates_and_zones_are_taken_as_python_has_them():
    start, end = date(2026, 1, 1), datetime(2027, 1, 1, tzinfo=UTC)
    declared = schedule("@daily", tz=ZoneInfo("Asia/Tokyo"), start=start, end=end, run=expire_carts)
    assert (declared.name, declared.tz) == ("shop.expire_carts", "Asia/Tokyo")
    assert (declared.start, declared.end) == (start, end)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, TypeError, r"exactly one of a cron expression, every= and next=, got: none of them"),
        ({"cron": "@daily", "every": 5}, TypeError, r"got: cron, every"),
        ({"every": 60, "overlp": "skip"}, TypeError, r"'overlp' is not an option.* Did you mean 'overlap'\?"),
        ({"every": 60, "overlap": "skp"}, InvalidOption, r"'skip' or 'queue', got: 'skp'.* mean 'skip'"),
        ({"every": 60, "catch_up": True}, InvalidOption, r"expected catch_up to be 'none', 'last' or 'all'"),
        ({"every": 60, "dst": "shft"}, InvalidOption, r"expected dst to be 'skip' or 'shift', got: 'shft'"),
        ({"every": 0.5}, InvalidOption, r"expected every to be 1 second or more, got: 0.5"),
        ({"every": "60"}, TypeError, r"expected every to be seconds"),
        ({"every": 60, "jitter": -1}, ValueError, r"expected jitter to be 0 seconds or more"),
        ({"cron": "* * * *"}, CronError, r"expected five fields"),
        ({"cron": 60}, CronError, r"such as '0 3 \* \* \*', got: 60\. Did you mean every=…\?"),
        ({"cron": later}, CronError, r"such as '0 3 \* \* \*', got: <function .*>\."),
        ({"every": 60, "hour": 3}, TypeError, r"Did you mean a cron expression, such as '0 3 \* \* \*'\?"),
        ({"every": 60, "task": "app.add"}, TypeError, r"Did you mean 'run'\?"),
        ({"every": 60, "timezone": "UTC"}, TypeError, r"Did you mean 'tz'\?"),
        ({"cron": "@daily", "tz": "Europe/Pari"}, CronError, r"expected a time zone"),
        ({"cron": "@daily", "tz": UTC}, InvalidOption, r"expected tz to be a name such as"),
        ({"next": later}, InvalidOption, r"expected next to be a plain function"),
        ({"next": "later"}, InvalidOption, r"expected next to be a plain function"),
        ({"every": 60, "start": datetime(2026, 1, 1)}, ValueError, r"expected start to be an aware datetime"),
        ({"every": 60, "end": "2026-01-01"}, TypeError, r"expected end to be an aware datetime"),
        ({"every": 60, "name": ""}, InvalidOption, r"1 to 128 printable characters, got: ''"),
        ({"every": 60, "run": add}, ImproperWork, r"so give a default to a, b; or give run= a built work"),
        ({"every": 60, "run": later}, ImproperWork, r"expected run= to be a plain function, got .*later"),
        ({"every": 60, "run": "app.add"}, ImproperWork, r"a function, a type, or .* got: 'app\.add'\.\n"),
        ({"every": 60, "run": None}, ImproperWork, r"got: None. Was a function called\?.*: run=nightly"),
        ({"every": 60, "run": dependency([], [])}, ImproperWork, r"build a gate in a function"),
        ({"every": 60, "run": lambda: None}, ImproperWork, r"expected name= for a schedule"),
        ({"every": 60, "run": functools.partial(plain)}, ImproperWork, r"expected name= for a schedule"),
        ({"every": 60, "run": plain}, ImproperWork, r"\.plain is in no installed app.*schedule\(name="),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_at_once(given, error, message):
    with pytest.raises(error, match=message):
        schedule(**({"run": expire_carts} | given))
    assert "shop.expire_carts" not in schedules.names()


@pytest.mark.django_db  # the checks of a command ask the database what it can do
@pytest.mark.parametrize("second", [add(a=1, b=2), plain], ids=["another function", "the same function"])
def test_two_schedules_of_one_name_are_reported_by_a_check(second):
    schedule(name="tick", every=60, run=plain)
    declared = schedule(name="tick", every=30, run=second)
    [message] = check_names(None)
    assert (message.id, message.level) == ("ayework.E011", ERROR)
    first = f"{__name__}.plain (declared in {__name__}, line"
    assert message.msg.startswith(f"Two schedules are named 'tick': {first} ")
    assert declared.function in message.msg
    with pytest.raises(SystemCheckError, match="Two schedules are named 'tick'"):
        call_command("ayework_status", skip_checks=False)
    declared.cancel()
    assert check_names(None) == []
    for every in (60, 30):  # the same line again replaces itself
        declared = schedule(name="again", every=every, run=plain)
    assert schedules.find("again") is declared
    assert check_names(None) == []


@pytest.mark.parametrize("decorator", [work, batch_work])
def test_a_work_above_a_schedule_is_refused_with_the_right_order(decorator):
    def nightly(): ...

    scheduled = schedule("@daily", name="nightly")(nightly)
    with pytest.raises(ImproperWork) as refusal:
        decorator(name="t.schedules.nightly")(scheduled)
    called = f"@{decorator.__name__}"
    assert str(refusal.value) == (
        f"expected @schedule above {called}, got {called} above @schedule for {nightly.__qualname__}(): the "
        "schedule would call the function itself, and queue no work. Write @schedule(…) in the line above "
        f"{called}."
    )
    assert schedules.find("nightly") is None
    schedule("@daily")(note)
    assert schedules.find("schedules.note").run is note  # type: ignore[union-attr]


def test_a_decorator_refuses_before_it_decorates_and_takes_one_cron_expression():
    with pytest.raises(InvalidOption):
        schedule("@daily", overlap="never")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        schedule("@daily", cron="@hourly", run=expire_carts)  # type: ignore[call-overload]


def row() -> Schedule:
    return Schedule.objects.get(name="tick")


@pytest.fixture
def heard(caplog):
    caplog.set_level(logging.INFO, logger="django_ayework")
    return caplog


@pytest.mark.django_db
class TestRowsOfSchedules:
    """Rows follow the declarations, and the history is kept for a month."""

    def test_a_new_schedule_is_added_and_begins_now(self, heard, django_assert_num_queries):
        schedule(name="tick", every=60, run=note, overlap="skip", jitter=0)
        schedule("0 3 * * *", name="other", run=note, jitter=5)
        sync()
        added = row()
        assert (added.origin, added.kind, added.every, added.function) == (
            "code",
            "every",
            60,
            "schedules.note",
        )
        assert (added.overlap, added.enabled) == ("skip", True)
        assert added.next_at - now() <= timedelta(seconds=60)
        assert "Added the schedule tick, which runs schedules.note." in heard.text
        with django_assert_num_queries(1):
            sync()

    def test_a_change_of_the_time_begins_anew_and_any_other_does_not(self, heard):
        schedule(name="tick", every=600, run=note)
        sync()
        before = row().next_at
        time_travel(601)
        schedule(name="tick", every=600, run=note, overlap="queue")
        sync()
        assert (row().overlap, row().next_at) == ("queue", before), "a due occurrence is kept"
        schedule(name="tick", every=60, run=note, overlap="queue")
        sync()
        assert before < row().next_at <= now() + timedelta(seconds=60)
        assert "Changed the schedule tick: due_at, error, every, failures, next_at." in heard.text

    def test_a_schedule_that_is_removed_is_disabled_and_kept(self, heard):
        declared = schedule(name="tick", every=60, run=note, catch_up="all")
        tick()
        time_travel(60)
        assert tick() == 1
        declared.cancel()
        sync()
        assert (row().enabled, row().due_at, Firing.objects.count()) == (False, None, 1)
        assert "Disabled the schedule tick: no code declares it any more." in heard.text
        Firing.objects.all().delete()  # nothing is fired again because its history is gone
        time_travel(3600)
        assert tick() == 0
        schedule(name="tick", every=60, run=note, catch_up="all")
        assert tick() == 0, "it goes on from now"
        time_travel(60)
        assert tick() == 1
        Firing.objects.all().delete()
        assert tick() == 0

    def test_a_name_taken_in_the_admin_is_left_alone(self, heard):
        ScheduleFactory(name="tick", origin="admin", every=5, function="schedules.note")
        schedule(name="tick", every=60, run=note)
        sync()
        assert (row().origin, row().every) == ("admin", 5)
        assert "one of this name was made in the admin" in heard.text

    def test_a_start_and_an_end_bound_what_a_function_is_asked_and_answers(self):
        start, end = now() + timedelta(minutes=1), now() + timedelta(minutes=2)
        asked, answers = [], [None, end]
        schedule(
            name="tick", next=lambda at: asked.append(at) or answers.pop(), start=start, end=end, run=note
        )
        tick()
        assert (row().next_at, asked) == (end, [start])
        time_travel(120)
        assert (tick(), row().next_at) == (1, None)

    def test_a_pause_outlives_a_sync(self):
        schedule(name="tick", every=60, run=note)
        sync()
        Schedule.objects.update(paused=True, next_at=None, due_at=None)
        schedule(name="tick", every=30, run=note)
        sync()
        assert (row().every, row().paused, row().due_at) == (30, True, None)

    def test_a_schedule_that_an_older_release_disabled_is_restored_now_and_then(self, heard, monkeypatch):
        schedule(name="tick", every=60, run=note)
        scheduler = Scheduler()
        scheduler.turn()
        ScheduleFactory(name="removed", function="shop.add", enabled=False)
        Schedule.objects.filter(name="tick").update(enabled=False, next_at=None, due_at=None)
        scheduler.turn()
        assert not row().enabled
        monkeypatch.setattr(scheduler, "_restore_at", 0.0)
        with time_travel(-300):  # by a clock that is behind, it is not fired again either
            scheduler.turn()
        assert row().enabled
        assert timedelta(seconds=50) < row().next_at - now() <= timedelta(seconds=60)
        assert not Schedule.objects.get(name="removed").enabled
        assert "Changed the schedule tick: due_at, enabled, error, failures, next_at." in heard.text

    def test_a_schedule_whose_row_was_deleted_is_added_again_now_and_then(self, monkeypatch):
        """As where one of its name was made in the admin, and is deleted there as the log says."""
        ScheduleFactory(name="tick", origin="admin", every=5, function="schedules.note")
        schedule(name="tick", every=60, run=note)
        scheduler = Scheduler()
        scheduler.turn()
        Schedule.objects.filter(name="tick").delete()
        monkeypatch.setattr(scheduler, "_restore_at", 0.0)
        scheduler.turn()
        assert (row().origin, row().every) == ("code", 60)
        assert timedelta(seconds=50) < row().next_at - now() <= timedelta(seconds=60)

    def test_a_schedule_that_an_older_release_enabled_is_disabled_once_nobody_fires_it(self, monkeypatch):
        lock = flow_schedules.lock_schedules

        def lock_late(names, skip_locked):
            Schedule.objects.filter(name="fired").update(due_at=now())
            return lock(names, skip_locked)

        monkeypatch.setattr(flow_schedules, "lock_schedules", lock_late)
        scheduler = Scheduler()
        scheduler.turn()
        for name in ("removed", "fired"):
            ScheduleFactory(name=name, function="shop.add", due_at=now() - timedelta(minutes=11))
        ScheduleFactory(name="recent", function="shop.add", due_at=now() - timedelta(minutes=9))
        monkeypatch.setattr(scheduler, "_restore_at", 0.0)
        scheduler.turn()
        kept = {row.name: (row.enabled, row.due_at is None) for row in Schedule.objects.all()}
        assert kept == {"recent": (True, False), "fired": (True, False), "removed": (False, True)}

    @pytest.mark.vendors("postgresql", "mysql")
    @pytest.mark.django_db(transaction=True)
    def test_a_schedule_that_another_process_is_firing_is_not_waited_for(self):
        ScheduleFactory(name="removed", function="shop.add", due_at=now() - timedelta(minutes=11))
        with transaction_elsewhere(lambda: Schedule.objects.update(due_at=now())):
            at_once(flow_schedules.restore)
        assert Schedule.objects.get().enabled

    def test_schedules_that_other_processes_leave_due_do_not_hide_ours(self):
        moment = now()
        for number in range(6):
            ScheduleFactory(
                name=f"foreign-{number}", function="elsewhere", due_at=moment - timedelta(hours=1)
            )
        ScheduleFactory(name="ours", function="shop.add", due_at=moment)
        ScheduleFactory(name="made", origin="admin", function="shop.add", due_at=moment)
        for limit in (2, 100):
            found = soonest(["ours"], ["shop.add"], limit)
            assert {Schedule.objects.get(id=id).name for id, _ in found} == {"ours", "made"}
        assert soonest(["absent"], [], 100) == []

    def test_old_firings_are_pruned_and_those_that_wait_are_not(self):
        old = FiringFactory(status="fired")
        waits = FiringFactory(status="queued")
        time_travel(FIRINGS_KEPT + timedelta(minutes=1))
        young = FiringFactory(status="missed")
        prune_others()
        assert set(Firing.objects.values_list("pk", flat=True)) == {waits.pk, young.pk} != {old.pk}
