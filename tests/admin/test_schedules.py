"""Schedules."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

from django_ayework import schedule
from django_ayework.admin import schedules as admin_of_schedules
from django_ayework.define.schedules import schedules
from django_ayework.flow import scheduler
from django_ayework.models import Firing, Schedule, Work
from django_ayework.store.connections import read_and_close
from django_ayework.testing import drain, now, tick, time_travel
from tests.admin.conftest import Page
from tests.admin.kit import address, assert_shows
from tests.app.works import add
from tests.processes import eventually
from tests.schedules.works import note, offered

pytestmark = pytest.mark.django_db
FORM = {
    "name": "weekly",
    "function": offered.name,
    "input": '{"days": 7}',
    "kind": "every",
    "every": "60",
    "cron": "",
    "tz": "UTC",
    "overlap": "allow",
    "catch_up": "last",
    "dst": "skip",
    "jitter": "0",
}


SCHEDULES = "schedule_changelist"


def row(name: str = "poll") -> Schedule:
    return Schedule.objects.get(name=name)


@pytest.fixture
def nightly() -> Iterator[None]:
    """Two schedules."""
    schedule("0 3 * * *", name="nightly", tz="Asia/Tokyo", run=add(a=1, b=2), start=date(2100, 1, 1))
    schedule(name="poll", every=60, run=add(a=3, b=4), catch_up="all", jitter=5)
    tick()
    yield
    for each in schedules:
        each.cancel()


def act(client: Client, page: str, action: str, *chosen: Any) -> str:
    data = {"action": f"{action}_selected", "_selected_action": [each.pk for each in chosen]}
    return client.post(address(page), data, follow=True).content.decode()


@pytest.mark.usefixtures("nightly")
def test_the_list_and_the_page_show_when_schedules_fire_and_how_they_failed(page: Page) -> None:
    text = page(SCHEDULES)
    assert "0 3 * * * (Asia/Tokyo)" in text
    assert "every 1 min" in text or "every 60 s" in text, text
    assert text.count(">active<") == 2
    Schedule.objects.filter(name="poll").update(failures=3, error="ValueError: <no luck>\nmore")
    text = page(SCHEDULES)
    assert_shows(text, ">failing<", "ValueError: &lt;no luck&gt;")
    text = page("schedule_change", str(row().pk))
    assert_shows(text, "3 failures in a row; the next try is at", "ValueError: &lt;no luck&gt;")
    schedules.find("nightly").cancel()  # type: ignore[union-attr]
    tick()
    assert ">not declared<" in page(SCHEDULES)


@pytest.mark.usefixtures("nightly")
def test_the_page_shows_the_next_firings_and_the_works_of_past_ones(page: Page) -> None:
    time_travel(timedelta(minutes=2, seconds=10))
    assert tick() == 2
    text = page("schedule_change", str(row().pk))
    for work in Work.objects.all():
        assert address("work_change", work.id) in text
    assert "Next firings" in text
    nightly = page("schedule_change", str(row("nightly").pk))
    assert nightly.count("18:00:00 UTC") >= 10
    assert "It has not fired yet." in nightly


@pytest.mark.usefixtures("nightly")
def test_schedules_are_paused_resumed_and_run(operator: Client) -> None:
    assert "2 were paused." in act(operator, SCHEDULES, "pause", row(), row("nightly"))
    assert row().paused
    time_travel(600)
    assert tick() == 0
    assert "1 was run." in act(operator, SCHEDULES, "run", row())
    firing = Firing.objects.get()
    assert (firing.status, firing.work_id) == ("fired", Work.objects.get().id)
    assert "2 were resumed." in act(operator, SCHEDULES, "resume", row(), row("nightly"))
    assert row().next_at > now()
    assert "0 were resumed." in act(operator, SCHEDULES, "resume", row())
    assert LogEntry.objects.count() == 5
    schedules.find("nightly").cancel()  # type: ignore[union-attr]
    text = act(operator, SCHEDULES, "run", row("nightly"), row())
    assert "The schedule nightly could not be run: nightly cannot be run: no code that is loaded" in text
    assert "1 was run." in text


@pytest.mark.usefixtures("nightly")
def test_actions_and_buttons_take_the_permission_to_change_and_a_post(client_with: Any) -> None:
    viewer, changer = client_with("view_schedule"), client_with("change_schedule")
    change, pause = (address(f"schedule_{name}", str(row().pk)) for name in ("change", "pause"))
    assert "pause_selected" not in viewer.get(address(SCHEDULES)).content.decode()
    offered = [client for client in (viewer, changer) if "/pause/" in client.get(change).content.decode()]
    assert offered == [changer]
    for name in ("pause", "run"):
        act(viewer, SCHEDULES, name, row())
    assert viewer.post(pause).status_code == 403
    assert changer.get(pause).status_code == 405
    assert client_with("view_work").get(address(SCHEDULES)).status_code == 403
    assert (row().paused, Work.objects.count()) == (False, 0)
    assert "1 was paused." in act(changer, SCHEDULES, "pause", row())
    assert "fires again from now on" in press(changer, "resume")
    assert not row().paused


@pytest.mark.usefixtures("nightly")
def test_forms_need_a_schedulable_type_and_a_schedule_that_code_does_not_declare(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert operator.post(address("schedule_change", str(row().pk)), {"name": "x"}).status_code == 403
    assert operator.post(address("schedule_delete", str(row().pk)), {"post": "yes"}).status_code == 403
    monkeypatch.setattr(admin_of_schedules, "schedulable_types", list)
    assert operator.get(address("schedule_add")).status_code == 403


def add_schedule(client: Client, **given: Any) -> Any:
    return client.post(address("schedule_add"), FORM | given)


def errors(response: Any) -> dict[str, list[str]]:
    return dict(response.context["adminform"].form.errors)


def test_a_schedule_is_made_fires_and_is_shown(operator: Client) -> None:
    form = operator.get(address("schedule_add")).content.decode()
    assert f'<option value="{offered.name}">' in form
    assert note.name not in form, "it is not schedulable"
    response = add_schedule(operator)
    assert response.status_code == 302, errors(response)
    assert (row("weekly").origin, row("weekly").kind, row("weekly").every) == ("admin", "every", 60.0)
    time_travel(60)
    assert tick() == 1
    assert drain().succeeded == 1
    assert json.loads(Work.objects.get().input)["days"] == 7
    page = operator.get(address("schedule_change", str(row("weekly").pk))).content.decode()
    assert address("work_change", Work.objects.get().id) in page


def test_it_is_changed_and_deleted(operator: Client) -> None:
    add_schedule(operator)
    page = address("schedule_change", str(row("weekly").pk))
    response = operator.post(page, FORM | {"kind": "cron", "cron": "0 3 * * *", "tz": "Asia/Tokyo"})
    assert response.status_code == 302, errors(response)
    assert (row("weekly").kind, row("weekly").every, row("weekly").next_at.hour) == ("cron", None, 18)
    time_travel(row("weekly").next_at - now())
    assert tick() == 1
    delete = address("schedule_delete", str(row("weekly").pk))
    assert operator.post(delete, {"post": "yes"}).status_code == 302
    assert (Schedule.objects.count(), Firing.objects.count()) == (0, 0)


def test_a_change_of_the_input_keeps_the_occurrence_that_is_due_and_tries_it_at_once(
    operator: Client,
) -> None:
    add_schedule(operator)
    first = row("weekly").next_at
    Schedule.objects.update(input='{"day": 7}')  # as before a release that calls it days
    time_travel(first - now())
    assert (tick(), row("weekly").failures) == (0, 1)
    page = address("schedule_change", str(row("weekly").pk))
    assert operator.post(page, FORM).status_code == 302
    assert (tick(), Firing.objects.get().occurrence, row("weekly").failures) == (1, first, 0)
    time_travel(60)
    operator.post(page, FORM | {"every": "90"})
    assert (tick(), row("weekly").next_at > now()) == (0, True), "it begins anew"


@pytest.mark.vendors("postgresql")
@pytest.mark.django_db(transaction=True)
def test_a_schedule_is_deleted_after_a_firing_in_progress(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_schedule(operator)
    has_begun = threading.Event()
    enqueue_one = scheduler.enqueue_one

    def enqueue_late(*args: Any) -> Any:
        has_begun.set()
        eventually(somebody_waits)
        return enqueue_one(*args)

    monkeypatch.setattr(scheduler, "enqueue_one", enqueue_late)
    pk = row("weekly").pk
    with ThreadPoolExecutor(1) as pool:
        firing = pool.submit(read_and_close, lambda: scheduler.run_now(pk))
        assert has_begun.wait(10)
        response = operator.post(address("schedule_delete", str(pk)), {"post": "yes"})
        firing.result()
    assert response.status_code == 302
    assert (Schedule.objects.count(), Firing.objects.count(), Work.objects.count()) == (0, 0, 1)


def somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE NOT granted AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"input": '{"day": 7}'}, "input", "schedules.offered: "),
        ({"input": "{}"}, "input", "missing a required argument: 'days'"),
        ({"input": "seven"}, "input", "Expecting value"),
        ({"input": "[7]"}, "input", "Expected a JSON object"),
        ({"kind": "cron", "cron": "* * * *"}, "cron", "expected five fields"),
        ({"kind": "cron"}, "cron", "expected five fields"),
        ({"every": "0.5"}, "every", "An interval is 1 second or more."),
        ({"every": ""}, "every", "An interval is 1 second or more."),
        ({"tz": "Europe/Pari"}, "tz", "expected a time zone"),
        ({"jitter": "-1"}, "jitter", "A jitter is 0 seconds or more."),
        ({"function": note.name}, "function", "Select a valid choice"),
        ({"name": "coded"}, "name", "Code declares a schedule of this name."),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_at_its_field(
    operator: Client, given: dict[str, str], field: str, message: str
) -> None:
    declared = schedule(name="coded", every=60, run=note)
    response = add_schedule(operator, **given)
    declared.cancel()
    assert response.status_code == 200
    assert message in "".join(errors(response)[field])
    assert not Schedule.objects.exists()


def test_each_act_has_its_permission(client_with: Any, operator: Client) -> None:
    viewer = client_with("view_schedule")
    assert viewer.get(address("schedule_add")).status_code == 403
    assert add_schedule(client_with("add_schedule")).status_code == 302
    page, delete = (address(f"schedule_{name}", str(row("weekly").pk)) for name in ("change", "delete"))
    assert viewer.get(page).status_code == 200
    for client in (viewer, client_with("view_schedule", "add_schedule")):
        assert client.post(page, FORM | {"every": "5"}).status_code == 403
        assert client.post(delete, {"post": "yes"}).status_code == 403
    assert client_with("change_schedule").post(page, FORM | {"every": "5"}).status_code == 302
    assert row("weekly").every == 5
    assert client_with("view_schedule", "delete_schedule").post(delete, {"post": "yes"}).status_code == 302


def test_a_type_that_is_gone_leaves_its_schedule_to_be_looked_at(operator: Client) -> None:
    add_schedule(operator)
    Schedule.objects.update(function="shop.gone")
    gone = FORM | {"function": "shop.gone"}
    time_travel(60)
    assert tick() == 0
    response = operator.post(address("schedule_change", str(row("weekly").pk)), gone)
    assert "no work is named" in "".join(errors(response)["input"])


def press(client: Client, button: str, name: str = "poll") -> str:
    return client.post(address(f"schedule_{button}", str(row(name).pk)), follow=True).content.decode()


def logged() -> str:
    return LogEntry.objects.latest("id").change_message


@pytest.mark.usefixtures("nightly")
def test_the_page_runs_pauses_and_resumes_or_says_why_it_cannot(operator: Client, page: Page) -> None:
    shown = page("schedule_change", str(row().pk))
    assert_shows(shown, "/run/", "/pause/")
    assert "/resume/" not in shown
    works = Work.objects.count()
    assert "The schedule poll was run." in press(operator, "run")
    assert Work.objects.count() == works + 1
    assert logged() == "Run by hand. It was active."
    assert "The schedule poll was paused." in press(operator, "pause")
    assert row().paused
    assert logged() == "Paused. It was active."
    assert "there was nothing to do" in press(operator, "pause")
    assert "The schedule poll fires again from now on." in press(operator, "resume")
    assert not row().paused
    assert logged() == "Resumed. It was paused."
    for each in schedules:
        each.cancel()
    assert "The schedule poll could not be run: poll cannot be run" in press(operator, "run")
    assert logged() == "Resumed. It was paused."


def test_a_changed_schedule_leaves_its_old_values_in_the_log(operator: Client) -> None:
    add_schedule(operator)
    operator.post(address("schedule_change", str(row("weekly").pk)), FORM | {"every": "90"})
    assert logged() == "Interval: 60.0 → 90.0."
