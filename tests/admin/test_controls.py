"""Controls of types and queues: one page with all of them, and a form for each."""

import re

import pytest
from django.contrib.admin.models import LogEntry

from django_ayework import enqueue, limit, pause
from django_ayework.define.types import registry
from django_ayework.flow.controls import current_controls
from django_ayework.models import WorkControl
from django_ayework.testing.factories import WorkControlFactory
from tests.admin.kit import address, assert_shows, logged
from tests.app.works import add, notify
from tests.controls.works import declared
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
CONTROLS = "workcontrol_changelist"
EMPTY = dict.fromkeys(("priority", "weight", "max_running", "max_claimed", "interval"), "")
EMPTY |= {"continuous": "unknown"}


@pytest.fixture(autouse=True)
def few_types(monkeypatch):
    """The page has a row for each type, and the modules of all tests declare a thousand."""
    monkeypatch.setattr(registry, "_declared", {each.name: each for each in (declared, add, notify)})
    registry.version += 1
    yield
    registry.version += 1


def errors(response):
    return response.context["adminform"].form.errors


def add_control(client, **given):
    return client.post(address("workcontrol_add"), EMPTY | given)


def in_place(client, act, name=declared.name, scope="type", **given):
    data = EMPTY | {"act": act, "scope": scope, "name": name} | given
    return client.post(address(CONTROLS), data, follow=True).content.decode()


def filled(text):
    """Return what a browser sends of the inputs in a page."""
    tags = re.findall("<input ([^>]*)>", text)
    inputs = [dict(re.findall(r'([a-z]+)(?:="([^"]*)")?', tag)) for tag in tags]
    return {
        each["name"]: each.get("value", "")
        for each in inputs
        if "name" in each and (each["type"] != "checkbox" or "checked" in each) and each["type"] != "submit"
    }


def row_of(text, name):
    (found,) = [row for row in text.split("<tr ") if f'<th scope="row">{name}</th>' in row]
    return found


def in_force(*names):
    """Return what is in force of the declared type."""
    control = current_controls().of(declared.name)
    return tuple(getattr(control, name) for name in names)


@each_database
def test_every_type_and_every_queue_is_listed_with_what_is_in_force(page):
    WorkControlFactory(name=declared.name, paused=False, max_running=7)
    WorkControlFactory(scope="queue", name="<b>controlled", paused=True)
    WorkControlFactory(name="shop.gone", paused=False, weight=3)
    enqueue(add(a=1, b=2), queue="busy")
    text = page(CONTROLS)
    shown = "weight 20, at most 7 running", "weight 20, at most 2 running", 'value="7"'
    assert_shows(row_of(text, declared.name), *shown)
    for name in ("shop.add", "default", "mail", "busy"):
        assert ">active</span>" in row_of(text, name)
    assert ">paused</span>" in row_of(text, "&lt;b&gt;controlled")
    assert ">not declared</span>" in row_of(text, "shop.gone")


def test_a_type_is_changed_in_its_row_and_returned_to_what_the_code_declares(operator):
    text = in_place(operator, "save", max_running="5", weight="40")
    assert "at most 5 running" in row_of(text, declared.name)
    assert in_force("max_running", "weight", "paused") == (5, 40, False)
    row = WorkControl.objects.get()
    shown = "running at most from as declared to 5.", "weight from as declared to 40."
    assert_shows(logged()[-1], *shown)
    in_place(operator, "save", max_running="6", weight="40")
    assert logged()[-1] == "Changed running at most from 5 to 6."
    in_place(operator, "declared")
    assert in_force("max_running", "weight") == (2, 20)
    assert WorkControl.objects.get().version > row.version, "workers must notice"
    assert "Changed weight from 40 to as declared." in logged()[-1]


@pytest.mark.parametrize(("scope", "name"), [("type", declared.name), ("queue", "mail")])
def test_types_and_queues_are_paused_and_resumed_in_place(operator, scope, name):
    assert ">paused</span>" in row_of(in_place(operator, "pause", name, scope), name)
    assert logged() == ["Paused; it was served."]
    assert WorkControl.objects.get().paused
    assert ">active</span>" in row_of(in_place(operator, "resume", name, scope), name)
    assert not WorkControl.objects.get().paused


def test_a_change_in_place_keeps_a_pause_and_what_was_changed_since_the_page_was_opened(operator):
    in_place(operator, "pause")
    in_place(operator, "save", weight="30")
    assert in_force("paused", "weight") == (True, 30)
    assert "there was nothing to change" in in_place(operator, "save", weight="30")
    opened = filled(row_of(operator.get(address(CONTROLS)).content.decode(), declared.name))
    limit(declared.name, max_running=1)
    in_place(operator, "save", **opened | {"weight": ""})
    assert in_force("weight", "max_running") == (20, 1)


def test_a_value_that_cannot_be_is_refused_in_its_row(operator):
    shown = row_of(in_place(operator, "save", weight="0", max_running="x"), declared.name)
    assert_shows(shown, "A weight is at least 1; pause the type to stop it.", "Enter a whole number.")
    assert "no type or queue of this name" in in_place(operator, "save", "shop.typo")
    assert not WorkControl.objects.exists()


def test_changing_in_place_takes_the_permissions_of_controls(client_with):
    viewer, adder = client_with("view_workcontrol"), client_with("view_workcontrol", "add_workcontrol")
    changer = client_with("change_workcontrol")
    assert "<form method" not in row_of(viewer.get(address(CONTROLS)).content.decode(), declared.name)
    for client, act, status in (
        (viewer, "pause", 403),
        (changer, "pause", 403),  # there is no control to change
        (adder, "pause", 302),
        (adder, "resume", 403),
        (changer, "declared", 403),
        (changer, "resume", 302),
    ):
        data = EMPTY | {"act": act, "scope": "type", "name": declared.name}
        assert client.post(address(CONTROLS), data).status_code == status, act
    assert client_with("view_work").get(address(CONTROLS)).status_code == 403


def test_a_type_is_paused_and_limited(operator):
    response = add_control(operator, scope="type", name=declared.name, paused="on", max_running="5")
    assert response.status_code == 302, errors(response)
    assert in_force("paused", "max_running") == (True, 5)
    row = WorkControl.objects.get()
    assert LogEntry.objects.get().object_id == str(row.pk)
    change = address("workcontrol_change", str(row.pk))
    shown = filled(operator.get(change).content.decode())
    del shown["paused"]
    assert operator.post(change, EMPTY | shown | {"max_running": "0"}).status_code == 302
    assert in_force("paused", "max_running") == (False, 0)
    assert WorkControl.objects.get().version > row.version, "workers must notice"
    assert_shows(logged()[-1], "Paused: yes → no.", "Running at most: 5 → 0.")


def test_a_pause_since_the_form_was_opened_stays(operator):
    limit(declared.name, weight=30)
    change = address("workcontrol_change", str(WorkControl.objects.get().pk))
    opened = filled(operator.get(change).content.decode())
    pause(type=declared.name)
    limit(declared.name, max_running=1)
    assert operator.post(change, EMPTY | opened | {"weight": "40"}).status_code == 302
    assert in_force("paused", "weight", "max_running") == (True, 40, 1)
    assert logged() == ["Weight: 30 → 40."]


@each_database
def test_a_control_that_is_there_is_changed_by_the_form_for_another_one_and_deleted(operator):
    row = WorkControlFactory(name=declared.name, paused=True, weight=30)
    response = add_control(operator, scope="type", name=declared.name, max_running="5")
    assert response.status_code == 302, errors(response)
    assert WorkControl.objects.get().pk == row.pk
    assert in_force("paused", "weight", "max_running") == (True, 30, 5)
    version = WorkControl.objects.get().version
    operator.post(address("workcontrol_delete", str(row.pk)), {"post": "yes"})
    assert in_force("paused", "weight", "max_running") == (False, 20, 2)
    assert WorkControl.objects.get().version > version, "workers must notice"


def test_a_control_that_cannot_be_is_refused_at_its_field(operator):
    response = add_control(operator, scope="type", name="controls.declard", weight="0", interval="-1")
    assert errors(response) == {
        "name": ["No work has this name. Did you mean 'controls.declared'?"],
        "weight": ["A weight is at least 1; pause the type to stop it."],
        "interval": ["An interval is 0 seconds or more."],
    }
    response = add_control(operator, scope="queue", name="mail", weight="3")
    assert errors(response) == {"weight": ["A queue can only be paused."]}
    assert add_control(operator, scope="queue", name="mail", paused="on").status_code == 302
    assert current_controls().paused_queues == {"mail"}


def test_names_are_suggested_and_declared_values_are_shown_at_the_same_cost_for_many(
    page, operator, django_assert_max_num_queries
):
    assert '<option value="controls.declared">' in page("workcontrol_add")
    shown = page("workcontrol_change", str(WorkControlFactory(name=declared.name).pk))
    as_declared = '<option value="unknown" selected>as declared</option>'
    assert_shows(shown, as_declared, "weight 20, at most 2 running")
    for number in range(30):
        WorkControlFactory(scope="queue", name=f"q{number}", paused=True)
    with django_assert_max_num_queries(6):
        operator.get(address(CONTROLS))
