"""``schedule()``: its arguments and its refusals."""

from __future__ import annotations

import functools
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.checks import ERROR
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from django_ayework import CronError, batch_work, dependency, schedule, work
from django_ayework.checks import check_schedules
from django_ayework.define.schedules import DeclaredSchedule, schedules
from django_ayework.errors import ImproperWork, InvalidOption
from tests.app.works import add, expire_carts, fail, notify
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
def test_works_and_functions_can_be_run(run: Any, function: str):
    assert schedule(name="given", every=60, run=run).function == function


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
def test_an_option_that_cannot_be_used_is_refused_at_once(
    given: dict[str, Any], error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        schedule(**({"run": expire_carts} | given))
    assert "shop.expire_carts" not in schedules.names()


@pytest.mark.django_db  # the checks of a command ask the database what it can do
@pytest.mark.parametrize("second", [add(a=1, b=2), plain], ids=["another function", "the same function"])
def test_two_schedules_of_one_name_are_reported_by_a_check(second: Any):
    schedule(name="tick", every=60, run=plain)
    declared = schedule(name="tick", every=30, run=second)
    [message] = check_schedules(None)
    assert (message.id, message.level) == ("ayework.E011", ERROR)
    first = f"{__name__}.plain (declared in {__name__}, line"
    assert message.msg.startswith(f"Two schedules are named 'tick': {first} ")
    assert declared.function in message.msg
    with pytest.raises(SystemCheckError, match="Two schedules are named 'tick'"):
        call_command("ayework_status", skip_checks=False)
    declared.cancel()
    assert check_schedules(None) == []
    for every in (60, 30):  # the same line again replaces itself
        declared = schedule(name="again", every=every, run=plain)
    assert schedules.find("again") is declared
    assert check_schedules(None) == []


def test_a_name_has_the_label_of_the_app_as_that_of_a_type_has():
    assert schedule(every=60, run=expire_carts).name == "shop.expire_carts"
    assert schedule(every=60, run=note).name == "schedules.note", "a type has its own name"
    assert schedule(every=60, run=plain, name="mine").name == "mine"


@pytest.mark.parametrize("decorator", [work, batch_work])
def test_a_work_above_a_schedule_is_refused_with_the_right_order(decorator: Any):
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
