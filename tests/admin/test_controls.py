"""Controls in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_ayework.flow.controls import current_controls
from django_ayework.models import WorkControl
from django_ayework.testing.factories import WorkControlFactory
from tests.admin.kit import address
from tests.controls.works import declared

pytestmark = pytest.mark.django_db
NUMBERS = ("priority", "weight", "max_running", "max_claimed", "interval")
EMPTY = dict.fromkeys(NUMBERS, "") | {"continuous": "unknown"}


def add(client: Client, **given: Any) -> Any:
    return client.post(address("workcontrol_add"), EMPTY | given)


def errors(response: Any) -> dict[str, list[str]]:
    return dict(response.context["adminform"].form.errors)


def test_a_type_is_paused_and_limited(admin_client: Client) -> None:
    response = add(admin_client, scope="type", name=declared.name, paused="on", max_running="5")
    assert response.status_code == 302, errors(response)
    control = current_controls().of(declared.name)
    assert (control.paused, control.max_running) == (True, 5)
    row = WorkControl.objects.get()
    assert LogEntry.objects.get().object_id == str(row.pk)
    change = address("workcontrol_change", str(row.pk))
    assert admin_client.post(change, EMPTY | {"max_running": "0"}).status_code == 302
    control = current_controls().of(declared.name)
    assert (control.paused, control.max_running) == (False, 0)
    assert WorkControl.objects.get().version > row.version, "workers must notice"


def test_a_queue_can_only_be_paused(admin_client: Client) -> None:
    response = add(admin_client, scope="queue", name="mail", weight="3")
    assert errors(response) == {"weight": ["A queue can only be paused."]}
    assert add(admin_client, scope="queue", name="mail", paused="on").status_code == 302
    assert current_controls().paused_queues == {"mail"}


def test_what_cannot_be_is_refused_where_it_was_typed(admin_client: Client) -> None:
    response = add(admin_client, scope="type", name="controls.declard", weight="0", interval="-1")
    assert errors(response) == {
        "name": ["No work is named so. Did you mean 'controls.declared'?"],
        "weight": ["A weight is at least 1; pause the type to stop it."],
        "interval": ["An interval is 0 seconds or more."],
    }
    add(admin_client, scope="queue", name="mail")
    assert "already exists" in str(errors(add(admin_client, scope="queue", name="mail")))


def test_names_are_suggested_and_what_the_code_declares_is_shown(admin_client: Client) -> None:
    form = admin_client.get(address("workcontrol_add")).content.decode()
    assert '<option value="controls.declared">' in form
    row = WorkControlFactory(name=declared.name)
    shown = admin_client.get(address("workcontrol_change", str(row.pk))).content.decode()
    assert '<option value="unknown" selected>as declared</option>' in shown
    assert "weight 20, at most 2 running" in shown
    assert (
        "weight 20, at most 2 running" in admin_client.get(address("workcontrol_changelist")).content.decode()
    )


def test_several_are_paused_and_resumed_at_once(admin_client: Client) -> None:
    rows = [WorkControlFactory(paused=False), WorkControlFactory(scope="queue", name="mail", paused=False)]
    chosen = {"_selected_action": [row.pk for row in rows]}
    listing = address("workcontrol_changelist")
    response = admin_client.post(listing, chosen | {"action": "pause_selected"}, follow=True)
    assert "2 were paused." in response.content.decode()
    assert WorkControl.objects.filter(paused=True, version__gt=1).count() == 2
    assert LogEntry.objects.count() == 2
    response = admin_client.post(listing, chosen | {"action": "resume_selected"}, follow=True)
    assert "2 were resumed." in response.content.decode()
    assert WorkControl.objects.filter(paused=True).count() == 0


def test_who_may_only_view_changes_nothing(client_with: Any) -> None:
    row = WorkControlFactory(paused=False)
    viewer = client_with("view_workcontrol")
    listing = address("workcontrol_changelist")
    assert viewer.get(listing).status_code == 200
    viewer.post(listing, {"action": "pause_selected", "_selected_action": [row.pk]})
    assert (
        viewer.post(address("workcontrol_change", str(row.pk)), EMPTY | {"paused": "on"}).status_code == 403
    )
    row.refresh_from_db()
    assert not row.paused
