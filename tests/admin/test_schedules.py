"""Schedules: the list, the page with its buttons, and the form."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection

from django_ayework import schedule
from django_ayework.admin import schedules as admin_of_schedules
from django_ayework.define.schedules import schedules
from django_ayework.flow import scheduler
from django_ayework.models import Firing, Schedule, Work
from django_ayework.store.connections import read_and_close
from django_ayework.testing import drain, now, tick, time_travel
from tests.admin.kit import address, assert_shows, logged
from tests.app.works import add
from tests.marks import each_database
from tests.processes import eventually
from tests.schedules.works import note, offered

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
SCHEDULES = "schedule_changelist"
FORM = {"name": "weekly", "function": offered.name, "input": '{"days": 7}', "kind": "every", "every": "60"}
FORM |= {"cron": "", "tz": "UTC", "overlap": "allow", "catch_up": "last", "dst": "skip", "jitter": "0"}


def row(name="poll"):
    return Schedule.objects.get(name=name)


def url_of(page, name="poll"):
    return address(f"schedule_{page}", str(row(name).pk))


def act(client, action, *chosen):
    data = {"action": f"{action}_selected", "_selected_action": [row(name).pk for name in chosen]}
    return client.post(address(SCHEDULES), data, follow=True).content.decode()


def press(client, button):
    return client.post(url_of(button), follow=True).content.decode()


def add_schedule(client, **given):
    return client.post(address("schedule_add"), FORM | given)


def change_schedule(client, **given):
    return client.post(url_of("change", "weekly"), FORM | given)


def errors(response):
    return dict(response.context["adminform"].form.errors)


@pytest.fixture
def nightly():
    """Two schedules."""
    schedule("0 3 * * *", name="nightly", tz="Asia/Tokyo", run=add(a=1, b=2), start=date(2100, 1, 1))
    schedule(name="poll", every=60, run=add(a=3, b=4), catch_up="all", jitter=5)
    tick()
    yield
    for each in schedules:
        each.cancel()


@pytest.mark.usefixtures("nightly")
def test_the_list_and_the_page_show_when_schedules_fire_and_how_they_failed(page):
    text = page(SCHEDULES)
    assert "0 3 * * * (Asia/Tokyo)" in text
    assert "every 1 min" in text or "every 60 s" in text, text
    assert text.count(">active<") == 2
    time_travel(timedelta(minutes=2, seconds=10))
    assert tick() == 2
    text = page("schedule_change", str(row().pk))
    assert_shows(text, "Next firings", *(address("work_change", work.id) for work in Work.objects.all()))
    text = page("schedule_change", str(row("nightly").pk))
    assert text.count("18:00:00 UTC") >= 10
    assert "It has not fired yet." in text
    Schedule.objects.filter(name="poll").update(failures=3, error="ValueError: <no luck>\nmore")
    assert_shows(page(SCHEDULES), ">failing<", "ValueError: &lt;no luck&gt;")
    text = page("schedule_change", str(row().pk))
    assert_shows(text, "3 failures in a row; the next try is at", "ValueError: &lt;no luck&gt;")
    schedules.find("nightly").cancel()
    tick()
    assert ">not declared<" in page(SCHEDULES)


@each_database
@pytest.mark.usefixtures("nightly")
def test_ticked_schedules_are_paused_resumed_and_run(operator):
    assert "2 were paused." in act(operator, "pause", "poll", "nightly")
    assert row().paused
    time_travel(600)
    assert tick() == 0
    assert "1 was run." in act(operator, "run", "poll")
    firing = Firing.objects.get()
    assert (firing.status, firing.work_id) == ("fired", Work.objects.get().id)
    assert "2 were resumed." in act(operator, "resume", "poll", "nightly")
    assert row().next_at > now()
    assert "0 were resumed." in act(operator, "resume", "poll")
    assert LogEntry.objects.count() == 5
    schedules.find("nightly").cancel()
    text = act(operator, "run", "nightly", "poll")
    refusal = "The schedule nightly could not be run: nightly cannot be run: no code that is loaded"
    assert_shows(text, refusal, "1 was run.")


@pytest.mark.usefixtures("nightly")
def test_the_page_runs_a_schedule_or_says_why_it_cannot(operator, page):
    shown = page("schedule_change", str(row().pk))
    assert_shows(shown, "/run/", "/pause/")
    assert "/resume/" not in shown
    assert "The schedule poll was run." in press(operator, "run")
    assert Work.objects.count() == 1
    press(operator, "pause")
    assert "there was nothing to do" in press(operator, "pause")
    for each in schedules:
        each.cancel()
    assert "The schedule poll could not be run: poll cannot be run" in press(operator, "run")
    assert logged() == ["Run by hand. It was active.", "Paused. It was active."]


@pytest.mark.usefixtures("nightly")
def test_actions_take_the_permission_to_change(client_with):
    viewer, changer = client_with("view_schedule"), client_with("change_schedule")
    assert "pause_selected" not in viewer.get(address(SCHEDULES)).content.decode()
    for name in ("pause", "run"):
        act(viewer, name, "poll")
    assert client_with("view_work").get(address(SCHEDULES)).status_code == 403
    assert (row().paused, Work.objects.count()) == (False, 0)
    assert "1 was paused." in act(changer, "pause", "poll")


@pytest.mark.usefixtures("nightly")
def test_forms_need_a_schedulable_type_and_a_schedule_that_code_does_not_declare(operator, monkeypatch):
    assert operator.post(url_of("change"), {"name": "x"}).status_code == 403
    assert operator.post(url_of("delete"), {"post": "yes"}).status_code == 403
    monkeypatch.setattr(admin_of_schedules, "schedulable_types", list)
    assert operator.get(address("schedule_add")).status_code == 403


@each_database
def test_a_schedule_is_made_fires_is_changed_and_deleted(operator, page):
    form = page("schedule_add")
    assert f'<option value="{offered.name}">' in form
    assert note.name not in form, "it is not schedulable"
    response = add_schedule(operator)
    assert response.status_code == 302, errors(response)
    assert (row("weekly").origin, row("weekly").kind, row("weekly").every) == ("admin", "every", 60.0)
    time_travel(60)
    assert tick() == 1
    assert drain().succeeded == 1
    assert json.loads(Work.objects.get().input)["days"] == 7
    assert address("work_change", Work.objects.get().id) in page("schedule_change", str(row("weekly").pk))
    assert change_schedule(operator, every="90").status_code == 302
    assert logged()[-1] == "Interval: 60.0 → 90.0."
    response = change_schedule(operator, kind="cron", cron="0 3 * * *", tz="Asia/Tokyo")
    assert response.status_code == 302, errors(response)
    assert (row("weekly").kind, row("weekly").every, row("weekly").next_at.hour) == ("cron", None, 18)
    time_travel(row("weekly").next_at - now())
    assert tick() == 1
    assert operator.post(url_of("delete", "weekly"), {"post": "yes"}).status_code == 302
    assert (Schedule.objects.count(), Firing.objects.count()) == (0, 0)


def test_a_change_of_the_input_keeps_the_occurrence_that_is_due_and_tries_it_at_once(operator):
    add_schedule(operator)
    first = row("weekly").next_at
    Schedule.objects.update(input='{"day": 7}')  # as before a release that calls it days
    time_travel(first - now())
    assert (tick(), row("weekly").failures) == (0, 1)
    assert change_schedule(operator).status_code == 302
    assert (tick(), Firing.objects.get().occurrence, row("weekly").failures) == (1, first, 0)
    time_travel(60)
    change_schedule(operator, every="90")
    assert (tick(), row("weekly").next_at > now()) == (0, True), "it begins anew"


def test_a_type_that_is_gone_leaves_its_schedule_to_be_looked_at(operator):
    add_schedule(operator)
    Schedule.objects.update(function="shop.gone")
    time_travel(60)
    assert tick() == 0
    response = change_schedule(operator, function="shop.gone")
    assert "no work is named" in "".join(errors(response)["input"])


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"input": '{"day": 7}'}, "input", "schedules.offered: "),
        ({"input": "{}"}, "input", "missing a required argument: 'days'"),
        ({"input": "seven"}, "input", "Expecting value"),
        ({"input": "[7]"}, "input", "Expected a JSON object"),
        ({"input": "[" * 100_000}, "input", "while decoding a JSON array"),
        ({"kind": "cron", "cron": "* * * *"}, "cron", "expected five fields"),
        ({"every": "0.5"}, "every", "An interval is 1 second or more."),
        ({"every": ""}, "every", "An interval is 1 second or more."),
        ({"tz": "Europe/Pari"}, "tz", "expected a time zone"),
        ({"jitter": "-1"}, "jitter", "A jitter is 0 seconds or more."),
        ({"function": note.name}, "function", "Select a valid choice"),
        ({"name": "coded"}, "name", "Code declares a schedule of this name."),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_at_its_field(operator, given, field, message):
    declared = schedule(name="coded", every=60, run=note)
    response = add_schedule(operator, **given)
    declared.cancel()
    assert response.status_code == 200
    assert message in "".join(errors(response)[field])
    assert not Schedule.objects.exists()


def test_each_act_has_its_permission(client_with):
    viewer, adder = client_with("view_schedule"), client_with("view_schedule", "add_schedule")
    assert viewer.get(address("schedule_add")).status_code == 403
    assert add_schedule(client_with("add_schedule")).status_code == 302
    assert viewer.get(url_of("change", "weekly")).status_code == 200
    for client in (viewer, adder):
        assert change_schedule(client, every="5").status_code == 403
        assert client.post(url_of("delete", "weekly"), {"post": "yes"}).status_code == 403
    assert change_schedule(client_with("change_schedule"), every="5").status_code == 302
    assert row("weekly").every == 5
    deleter = client_with("view_schedule", "delete_schedule")
    assert deleter.post(url_of("delete", "weekly"), {"post": "yes"}).status_code == 302


def somebody_waits():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE NOT granted AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])


@pytest.mark.vendors("postgresql")
@pytest.mark.django_db(transaction=True)
def test_a_schedule_is_deleted_after_a_firing_in_progress(operator, monkeypatch):
    add_schedule(operator)
    has_begun, enqueue_one = threading.Event(), scheduler.enqueue_one

    def enqueue_late(*args):
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
