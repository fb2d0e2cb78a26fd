"""Schedules that are made and edited in the admin."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from django_ayework import schedule
from django_ayework.models import Firing, Schedule, Work
from django_ayework.testing import drain, now, tick, time_travel
from tests.admin.kit import address
from tests.schedules.works import note, offered

pytestmark = pytest.mark.django_db
FILLED = {
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


def add(client: Client, **given: Any) -> Any:
    return client.post(address("schedule_add"), FILLED | given)


def errors(response: Any) -> dict[str, list[str]]:
    return dict(response.context["adminform"].form.errors)


def row() -> Schedule:
    return Schedule.objects.get(name="weekly")


def test_a_schedule_is_made_fires_and_is_shown(operator: Client) -> None:
    form = operator.get(address("schedule_add")).content.decode()
    assert f'<option value="{offered.name}">' in form
    assert note.name not in form, "it is not schedulable"
    response = add(operator)
    assert response.status_code == 302, errors(response)
    assert (row().origin, row().kind, row().every) == ("admin", "every", 60.0)
    time_travel(60)
    assert tick() == 1
    assert drain().succeeded == 1
    assert json.loads(Work.objects.get().input)["days"] == 7
    page = operator.get(address("schedule_change", str(row().pk))).content.decode()
    assert address("work_change", Work.objects.get().id) in page


def test_it_is_changed_and_deleted(operator: Client) -> None:
    add(operator)
    page = address("schedule_change", str(row().pk))
    response = operator.post(page, FILLED | {"kind": "cron", "cron": "0 3 * * *", "tz": "Asia/Tokyo"})
    assert response.status_code == 302, errors(response)
    assert (row().kind, row().every, row().next_at.hour) == ("cron", None, 18)
    time_travel(row().next_at - now())
    assert tick() == 1
    delete = address("schedule_delete", str(row().pk))
    assert operator.post(delete, {"post": "yes"}).status_code == 302
    assert (Schedule.objects.count(), Firing.objects.count()) == (0, 0)


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
def test_what_cannot_be_is_refused_where_it_was_typed(
    operator: Client, given: dict[str, str], field: str, message: str
) -> None:
    declared = schedule(name="coded", every=60, run=note)
    response = add(operator, **given)
    declared.cancel()
    assert response.status_code == 200
    assert message in "".join(errors(response)[field])
    assert not Schedule.objects.exists()


def test_each_act_has_its_permission(client_with: Any, operator: Client) -> None:
    viewer = client_with("view_schedule")
    assert viewer.get(address("schedule_add")).status_code == 403
    assert add(client_with("add_schedule")).status_code == 302
    page, delete = (address(f"schedule_{name}", str(row().pk)) for name in ("change", "delete"))
    assert viewer.get(page).status_code == 200
    for client in (viewer, client_with("view_schedule", "add_schedule")):
        assert client.post(page, FILLED | {"every": "5"}).status_code == 403
        assert client.post(delete, {"post": "yes"}).status_code == 403
    assert client_with("change_schedule").post(page, FILLED | {"every": "5"}).status_code == 302
    assert row().every == 5
    assert client_with("view_schedule", "delete_schedule").post(delete, {"post": "yes"}).status_code == 302


def test_a_type_that_is_gone_leaves_its_schedule_to_be_looked_at(operator: Client) -> None:
    add(operator)
    Schedule.objects.update(function="shop.gone")
    time_travel(60)
    assert tick() == 0
    response = operator.post(address("schedule_change", str(row().pk)), FILLED | {"function": "shop.gone"})
    assert "no work is named" in "".join(errors(response)["input"])
