"""Pausing, resuming and limiting in place: what happens, who may, and what is logged."""

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_ayework import work
from django_ayework.admin.controls import WorkControlAdmin
from django_ayework.admin.overview_tables import Control
from django_ayework.flow.controls import current_controls
from django_ayework.models import WorkControl
from django_ayework.testing.factories import WorkControlFactory, WorkFactory
from tests.admin.kit import address, assert_shows, told
from tests.app.works import add
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
TYPE = add.name
KEY = Control("type", TYPE, None, True, "").key


@work(name="overview.limited", max_running=7)
def limited() -> None: ...


def url_of(act, scope="type", name=TYPE):
    return address("overview_control", scope=scope, name=name, act=act, key="k")


def press(client, act, scope="type", name=TYPE, **values):
    """Press a button of a row, with what its fields hold."""
    return client.post(url_of(act, scope, name), {f"{field}-k": value for field, value in values.items()})


def limit_url(client):
    """Return the address of the button that sets the limit, as the page has it now."""
    [row] = client.get(address("overview_changelist")).context["board"]["tables"][0].rows
    assert row.control.key == KEY
    return row.control.limit_url


def control(scope="type", name=TYPE):
    return WorkControl.objects.get(scope=scope, name=name)


def logged():
    return [(entry.object_repr, entry.change_message) for entry in LogEntry.objects.order_by("id")]


@pytest.mark.parametrize(("scope", "name"), [("type", TYPE), ("queue", "mail")])
def test_a_type_and_a_queue_are_paused_and_resumed(operator, scope, name):
    response = press(operator, "pause", scope, name)
    assert (response.status_code, response["Location"]) == (302, address("overview_changelist"))
    assert told(response) == [f"{name}: Paused; it was served."]
    version = control(scope, name).version
    assert control(scope, name).paused
    assert not current_controls().permits("mail", TYPE)
    assert told(press(operator, "pause", scope, name))[-1] == f"{name}: there was nothing to change."
    assert control(scope, name).version == version
    press(operator, "resume", scope, name)
    assert not control(scope, name).paused
    repr = f"{scope} {name}"
    assert logged() == [(repr, "Paused; it was served."), (repr, "Resumed; it was paused.")]
    assert LogEntry.objects.first().user.username == "operator"


@each_database
def test_a_limit_and_a_weight_are_set_and_taken_back_and_the_old_values_are_logged(operator):
    press(operator, "limit", max_running="2", weight="40")
    assert (control().max_running, control().weight, control().paused) == (2, 40, False)
    assert current_controls().of(TYPE).max_running == 2
    before = control().version
    press(operator, "limit", max_running="0", weight="40")
    assert control().version > before, "workers must notice"
    press(operator, "limit", max_running="", weight="")
    assert (control().max_running, control().weight) == (None, None)
    assert [text for _, text in logged()] == [
        "Changed running at most from as declared to 2. Changed weight from as declared to 40.",
        "Changed running at most from 2 to 0.",
        "Changed running at most from 0 to as declared. Changed weight from 40 to as declared.",
    ]


@each_database
def test_a_value_that_was_left_as_shown_stays_as_others_have_set_it_meanwhile(operator):
    WorkFactory()
    WorkControlFactory(name=TYPE, paused=False, max_running=4)
    shown = limit_url(operator)
    press(operator, "limit", max_running="4", weight="40")
    assert operator.post(shown, {f"max_running-{KEY}": "9", f"weight-{KEY}": ""}).status_code == 302
    assert (control().max_running, control().weight) == (9, 40)
    response = operator.post(limit_url(operator), {f"max_running-{KEY}": "9", f"weight-{KEY}": "40"})
    assert told(response)[-1] == f"{TYPE}: there was nothing to change."
    operator.post(limit_url(operator), {f"max_running-{KEY}": "", f"weight-{KEY}": "40"})
    assert (control().max_running, control().weight) == (None, 40)


@pytest.mark.parametrize(
    ("scope", "values", "refusal"),
    [
        ("type", {"max_running": "-1"}, "running at most: Ensure this value is greater than or equal to 0."),
        ("type", {"max_running": "many"}, "running at most: Enter a whole number."),
        ("type", {"weight": "0"}, "weight: Ensure this value is greater than or equal to 1."),
        ("type", {"max_running": str(2**31)},
         "running at most: Ensure this value is less than or equal to 2147483647."),
        ("queue", {"max_running": "2"}, "A queue can only be paused."),
    ],
)  # fmt: skip
def test_a_limit_that_cannot_be_used_is_refused_in_words(operator, scope, values, refusal):
    assert told(press(operator, "limit", scope, **values)) == [refusal]
    assert not WorkControl.objects.exists()


def test_what_is_not_known_is_not_controlled(operator):
    for scope, name, part in (
        ("type", "shop.unheard_of", "shop.unheard_of"),
        ("queue", "", "queue"),
        ("queue", "q" * 65, "queue"),
    ):
        assert part in told(press(operator, "pause", scope, name))[-1]
    for scope, act in (("type", "destroy"), ("type", ""), ("fleet", "pause")):
        assert press(operator, act, scope).status_code == 400
    assert not WorkControl.objects.exists()


def test_a_type_that_only_other_processes_know_is_controlled_while_its_works_wait(operator):
    WorkFactory(type="elsewhere.flood")
    press(operator, "pause", name="elsewhere.flood")
    assert control(name="elsewhere.flood").paused
    WorkControlFactory(name="elsewhere.gone")
    press(operator, "resume", name="elsewhere.gone")
    assert not control(name="elsewhere.gone").paused


def test_fields_hold_what_was_set_by_hand_and_show_what_is_in_force(page):
    WorkFactory(type=limited.name)
    assert_shows(page("overview_changelist"), 'value="" placeholder="7"', 'value="" placeholder="20"')
    WorkControlFactory(name=limited.name, paused=False, max_running=0, weight=1234)
    fields = 'value="0" placeholder="no limit"', 'value="1234" placeholder="1234"'
    assert_shows(page("overview_changelist"), *fields)


def test_a_change_takes_a_post_with_the_token_by_somebody_who_is_known(operator, client):
    careful = Client(enforce_csrf_checks=True)
    careful.cookies = operator.cookies
    assert operator.get(url_of("pause")).status_code == 405
    assert "login" in press(client, "pause")["Location"]
    assert press(careful, "pause").status_code == 403
    assert not WorkControl.objects.exists()
    token = careful.get(address("overview_changelist")).context["csrf_token"]
    assert careful.post(url_of("pause"), {"csrfmiddlewaretoken": str(token)}).status_code == 302
    assert control().paused


#: An act of each kind: its name, scope, name of what it changes, and values.
ACTS = [
    ("pause", "type", add.name, {}),
    ("limit", "type", limited.name, {"max_running": "2"}),
    ("pause", "queue", "mail", {}),
]


@pytest.mark.parametrize("there", [True, False], ids=["a row", "no row"])
@pytest.mark.parametrize(
    "permissions", ["view_workcontrol change_work", "add_workcontrol", "change_workcontrol"]
)
def test_who_may_do_what(client_with, permissions, there):
    client = client_with("view_overview", *permissions.split())
    is_allowed = permissions == ("change_workcontrol" if there else "add_workcontrol")
    for _act, scope, name, _values in ACTS:
        WorkFactory(**{scope: name})
        if there:
            WorkControlFactory(scope=scope, name=name, paused=False)
    shown = client.get(address("overview_changelist")).content.decode()
    for act, scope, name, values in ACTS:
        assert (f"scope={scope}&amp;name={name}&amp;act={act}" in shown) is is_allowed
        assert press(client, act, scope, name, **values).status_code == (302 if is_allowed else 403)
    assert len(logged()) == (len(ACTS) if is_allowed else 0)
    untouched = WorkControl.objects.filter(paused=False, max_running=None).count()
    assert untouched == (len(ACTS) if there and not is_allowed else 0)


class Guarded(WorkControlAdmin):
    """Lets everybody control types, and nobody queues."""

    def has_change_permission(self, request, obj=None):
        return obj is None or obj.scope == "type"


def test_the_permission_is_that_of_the_sites_admin_of_controls_asked_with_the_object(
    client_with, monkeypatch
):
    monkeypatch.setitem(admin.site._registry, WorkControl, Guarded(WorkControl, admin.site))
    client = client_with("view_overview")
    for scope, status in (("type", 302), ("queue", 403)):
        WorkControlFactory(scope=scope, name=TYPE, paused=False)
        assert press(client, "pause", scope).status_code == status
