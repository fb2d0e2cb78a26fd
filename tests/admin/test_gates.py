"""Gates in the admin: how far each is, and what can be done about one that never opens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

from django_ayework import Count, cancel, dependency, enqueue, enqueue_many
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.admin.conftest import Page
from tests.admin.kit import address, assert_hides, assert_shows, ids_on
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db
GATES = "gate_changelist"
TICKED = "_selected_action"


def gate_on(number: int, **options: Any) -> Work:
    """A gate that waits for so many works, none of which is due."""
    watched = enqueue_many([add(a=1, b=each) for each in range(number)], delay=3600)
    return Work.objects.get(id=enqueue(dependency(on=watched, queue=[add(a=7, b=7)], **options)).id)


def press(client: Client, button: str, gate: Work) -> Any:
    return client.post(address(f"gate_{button}", gate.id), follow=True)


def test_gates_that_wait_are_listed_with_condition_and_tally(page: Page) -> None:
    watched = [*enqueue_many([add(a=1, b=1), add(a=1, b=2)]), enqueue(add(a=1, b=3), delay=3600)]
    gate = enqueue(dependency(on=watched, queue=[add(a=7, b=7)], timeout=timedelta(hours=2)))
    drain()
    text = page(GATES)
    assert gate.id in text
    bar = '<progress class="ayework-bar" value="2" max="3" aria-label="how far">'
    assert_shows(text, "all succeeded", "2 of 3", bar)


@pytest.mark.parametrize(
    ("condition", "words", "far"),
    [
        ("all-success", "all succeeded", "1 of 3"),
        ("all-done", "all ended", "2 of 3"),
        (Count(3), "3 ended", "2 of 3"),
        (Count(2, of="success"), "2 succeeded", "1 of 2"),
    ],
)
def test_each_condition_counts_what_it_takes(page: Page, condition: Any, words: str, far: str) -> None:
    watched = [enqueue(add(a=1, b=1)), enqueue(fail()), enqueue(add(a=1, b=3), delay=9_000)]
    enqueue(dependency(on=watched, queue=[add(a=7, b=7)], condition=condition, on_unmet="wait"))
    cancel(watched[1].id)
    drain()
    text = page(GATES)
    assert words in text
    assert_shows(text, far, "1 without success")


def test_other_works_and_gates_that_ended_are_left_out_until_they_are_asked_for(operator: Client) -> None:
    waits, opened, given_up = gate_on(1), gate_on(2), gate_on(3)
    press(operator, "open", opened)
    press(operator, "give_up", given_up)
    assert ids_on(operator.get(address(GATES))) == [waits.id]
    assert ids_on(operator.get(address(GATES, status="success"))) == [opened.id]
    assert ids_on(operator.get(address(GATES, status="cancelled"))) == [given_up.id]
    assert ids_on(operator.get(address(GATES, status="dead"))) == []
    assert ids_on(operator.get(address(GATES, q=opened.id))) == [opened.id]
    assert ids_on(operator.get(address(GATES, q="nothing"))) == []


def test_a_gate_opens_now_and_releases_its_works(operator: Client) -> None:
    gate = gate_on(2)
    before = set(Work.objects.values_list("id", flat=True))
    response = press(operator, "open", gate)
    assert "1 gate was opened." in response.content.decode()
    gate.refresh_from_db()
    assert gate.status == "success"
    (released,) = Work.objects.exclude(id__in=before)
    assert (released.type, released.status) == ("shop.add", "pending")
    entry = LogEntry.objects.get()
    assert entry.change_message == "Opened by hand. It was blocked."
    assert entry.object_id == gate.id


def test_a_gate_that_is_given_up_queues_nothing(operator: Client) -> None:
    gate = gate_on(2)
    before = Work.objects.count()
    assert "1 gate was given up." in press(operator, "give_up", gate).content.decode()
    gate.refresh_from_db()
    assert (gate.status, Work.objects.count()) == ("cancelled", before)
    assert LogEntry.objects.get().change_message == "Given up by hand. It was blocked."


def test_a_gate_that_has_ended_has_no_buttons_and_stays_as_it_is(operator: Client, page: Page) -> None:
    gate = gate_on(1)
    press(operator, "open", gate)
    text = page("gate_change", gate.id)
    assert f"{gate.id}/open/" not in text
    press(operator, "give_up", gate)
    gate.refresh_from_db()
    assert gate.status == "success"


def test_ticked_gates_are_opened_together(operator: Client) -> None:
    gates = [gate_on(1), gate_on(1)]
    data = {"action": "open_selected", TICKED: [gate.id for gate in gates]}
    assert "2 gates were opened." in operator.post(address(GATES), data, follow=True).content.decode()
    assert Work.objects.filter(status="success").count() == 2
    assert LogEntry.objects.count() == 2


def test_opening_and_giving_up_take_permissions_of_their_own(client_with: Callable[..., Client]) -> None:
    gate = gate_on(1)
    viewer, opener = client_with("view_work"), client_with("view_gate", "change_work")
    canceller = client_with("view_gate", "cancel_work")
    text = viewer.get(address("gate_change", gate.id)).content.decode()
    assert_hides(text, "Open now", "Give up")
    for client, button in ((viewer, "open"), (viewer, "give_up"), (opener, "give_up"), (canceller, "open")):
        assert press(client, button, gate).status_code == 403
    assert opener.get(address("gate_open", gate.id)).status_code == 405
    assert client_with("view_group").get(address(GATES)).status_code == 403
    assert press(canceller, "give_up", gate).status_code == 200


def test_a_work_that_is_no_gate_has_no_page_among_gates(operator: Client) -> None:
    other = enqueue(add(a=1, b=2))
    assert operator.post(address("gate_open", other.id)).status_code == 404
    assert other.state().status == "pending"


def test_the_list_costs_the_same_with_many_gates(
    operator: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(20):
        gate_on(1)
    with django_assert_max_num_queries(6):
        operator.get(address(GATES))


@pytest.mark.parametrize(
    ("status", "index"), [("blocked", "ayework_blocked"), ("success", "ayework_ended"), ("dead", "ayework_")]
)
def test_an_index_leads_to_the_gates(operator: Client, status: str, index: str) -> None:
    gate_on(1)
    queryset = operator.get(address(GATES, status=status)).context["cl"].queryset
    if connection.vendor == "sqlite":
        assert index in queryset.explain()


def test_the_link_to_act_on_all_is_about_the_gates_of_the_list(page: Page) -> None:
    gate_on(1)
    text = page(GATES)
    assert "?type=%40work%2Fdependency&amp;status=blocked" in text
