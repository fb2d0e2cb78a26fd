"""Schedules in the admin."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_ayework import schedule
from django_ayework.admin import schedules as admin_of_schedules
from django_ayework.define.schedules import schedules
from django_ayework.models import Firing, Schedule, Work
from django_ayework.testing import now, tick, time_travel
from tests.admin.conftest import Page
from tests.admin.kit import address
from tests.app.works import add

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nightly() -> Iterator[None]:
    """Two schedules."""
    schedule("0 3 * * *", name="nightly", tz="Asia/Tokyo", run=add(a=1, b=2), start=date(2100, 1, 1))
    schedule(name="poll", every=60, run=add(a=3, b=4), catch_up="all", jitter=5)
    tick()
    yield
    for declared in schedules:
        declared.cancel()


def row(name: str = "poll") -> Schedule:
    return Schedule.objects.get(name=name)


def act(client: Client, action: str, *chosen: Schedule) -> str:
    data = {"action": action, "_selected_action": [each.pk for each in chosen]}
    return client.post(address("schedule_changelist"), data, follow=True).content.decode()


def test_the_list_shows_what_fires_when(page: Page) -> None:
    text = page("schedule_changelist")
    assert "0 3 * * * (Asia/Tokyo)" in text
    assert "every 1 min" in text or "every 60 s" in text, text
    assert text.count(">active<") == 2
    Schedule.objects.filter(name="poll").update(failures=3, error="ValueError: no luck\nmore")
    assert ">failing<" in page("schedule_changelist")
    assert "ValueError: no luck" in page("schedule_changelist")
    schedules.find("nightly").cancel()  # type: ignore[union-attr]
    tick()
    assert ">not declared<" in page("schedule_changelist")


def test_the_page_foresees_firings_and_shows_the_history_with_its_works(page: Page) -> None:
    time_travel(timedelta(minutes=2, seconds=10))
    assert tick() == 2
    text = page("schedule_change", str(row().pk))
    for work in Work.objects.all():
        assert address("work_change", work.id) in text
    assert "Next firings" in text
    nightly = page("schedule_change", str(row("nightly").pk))
    assert nightly.count("18:00:00 UTC") >= 10
    assert "It has not fired yet." in nightly


def test_the_page_shows_what_keeps_it(page: Page) -> None:
    Schedule.objects.filter(name="poll").update(failures=3, error="ValueError: <no luck>")
    text = page("schedule_change", str(row().pk))
    assert "3 failures in a row; the next try is at" in text
    assert "ValueError: &lt;no luck&gt;" in text


def test_schedules_are_paused_resumed_and_run(operator: Client) -> None:
    assert "2 were paused." in act(operator, "pause_selected", row(), row("nightly"))
    assert row().paused
    time_travel(600)
    assert tick() == 0
    assert "1 was run." in act(operator, "run_selected", row())
    firing = Firing.objects.get()
    assert (firing.status, firing.work_id) == ("fired", Work.objects.get().id)
    assert "2 were resumed." in act(operator, "resume_selected", row(), row("nightly"))
    assert row().next_at > now()
    assert "0 were resumed." in act(operator, "resume_selected", row())
    assert LogEntry.objects.count() == 5


def test_what_cannot_be_run_is_told(operator: Client) -> None:
    schedules.find("nightly").cancel()  # type: ignore[union-attr]
    text = act(operator, "run_selected", row("nightly"), row())
    assert "The schedule nightly could not be run: nightly cannot be run: no code that is loaded" in text
    assert "1 was run." in text


def test_who_may_only_view_acts_on_nothing(client_with: Any) -> None:
    viewer = client_with("view_schedule")
    text = viewer.get(address("schedule_changelist")).content.decode()
    assert "pause_selected" not in text
    act(viewer, "pause_selected", row())
    act(viewer, "run_selected", row())
    assert (row().paused, Work.objects.count()) == (False, 0)
    assert viewer.get(address("schedule_change", str(row().pk))).status_code == 200
    assert client_with("view_work").get(address("schedule_changelist")).status_code == 403


def test_who_may_change_acts(client_with: Any) -> None:
    changer = client_with("change_schedule")
    assert "1 was paused." in act(changer, "pause_selected", row())
    assert changer.get(address("schedule_change", str(row().pk))).status_code == 200


def test_none_is_made_where_no_type_is_schedulable(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_of_schedules, "schedulable_types", list)
    assert operator.get(address("schedule_add")).status_code == 403


def test_what_code_declares_is_changed_there(operator: Client) -> None:
    assert operator.post(address("schedule_change", str(row().pk)), {"name": "x"}).status_code == 403
    assert operator.post(address("schedule_delete", str(row().pk)), {"post": "yes"}).status_code == 403
