"""Gates in the admin: how far each is, and what can be done about one that never opens."""

from datetime import timedelta

import pytest
from django.db import connection

from django_ayework import Count, cancel, dependency, enqueue, enqueue_many
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.admin.kit import address, assert_shows, ids_on, logged
from tests.app.works import add, fail
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
GATES = "gate_changelist"


def gate_on(number):
    """A gate that waits for so many works, none of which is due."""
    watched = enqueue_many([add(a=1, b=each) for each in range(number)], delay=3600)
    return Work.objects.get(id=enqueue(dependency(on=watched, queue=[add(a=7, b=7)])).id)


def press(client, button, gate):
    return client.post(address(f"gate_{button}", gate.id), follow=True)


@each_database
def test_gates_that_wait_are_listed_with_condition_and_tally(page):
    watched = [*enqueue_many([add(a=1, b=1), add(a=1, b=2)]), enqueue(add(a=1, b=3), delay=3600)]
    gate = enqueue(dependency(on=watched, queue=[add(a=7, b=7)], timeout=timedelta(hours=2)))
    drain()
    bar = '<progress class="ayework-bar" value="2" max="3" aria-label="how far">'
    act_on_all = "?type=%40work%2Fdependency&amp;status=blocked"
    assert_shows(page(GATES), gate.id, "all succeeded", "2 of 3", bar, act_on_all)


@pytest.mark.parametrize(
    ("condition", "words", "far"),
    [
        ("all-success", "all succeeded", "1 of 3"),
        ("all-done", "all ended", "2 of 3"),
        (Count(3), "3 ended", "2 of 3"),
        (Count(2, of="success"), "2 succeeded", "1 of 2"),
    ],
)
def test_each_condition_counts_what_it_takes(page, condition, words, far):
    watched = [enqueue(add(a=1, b=1)), enqueue(fail()), enqueue(add(a=1, b=3), delay=9_000)]
    enqueue(dependency(on=watched, queue=[add(a=7, b=7)], condition=condition, on_unmet="wait"))
    cancel(watched[1].id)
    drain()
    assert_shows(page(GATES), words, far, "1 without success")


def test_other_works_and_gates_that_ended_are_left_out_until_they_are_asked_for(operator, client_with):
    waits, opened, given_up = gate_on(1), gate_on(2), gate_on(3)
    press(operator, "open", opened)
    press(operator, "give_up", given_up)
    for query, found in (
        ({}, [waits]),
        ({"status": "success"}, [opened]),
        ({"status": "cancelled"}, [given_up]),
        ({"status": "dead"}, []),
        ({"q": opened.id}, [opened]),
        ({"q": "nothing"}, []),
    ):
        assert ids_on(operator.get(address(GATES, **query))) == [gate.id for gate in found], query
    assert client_with("view_group").get(address(GATES)).status_code == 403


@each_database
def test_gates_are_opened_and_release_their_works_or_are_given_up_and_queue_nothing(operator):
    opened, given_up = gate_on(2), gate_on(2)
    before = set(Work.objects.values_list("id", flat=True))
    press(operator, "give_up", given_up)
    assert not Work.objects.exclude(id__in=before).exists()
    press(operator, "open", opened)
    (released,) = Work.objects.exclude(id__in=before)
    assert (released.type, released.status) == ("shop.add", "pending")
    press(operator, "give_up", opened)
    for gate, status in ((opened, "success"), (given_up, "cancelled")):
        gate.refresh_from_db()
        assert gate.status == status
    press(operator, "retry", given_up)
    given_up.refresh_from_db()
    assert given_up.status == "blocked"
    assert press(operator, "open", released).status_code == 404, "it is no gate"


def test_ticked_gates_are_opened_together(operator):
    data = {"action": "open_selected", "_selected_action": [gate_on(1).id, gate_on(1).id]}
    assert "2 gates were opened." in operator.post(address(GATES), data, follow=True).content.decode()
    assert Work.objects.filter(status="success").count() == 2
    assert len(logged()) == 2


@pytest.mark.parametrize(
    ("status", "index"), [("blocked", "ayework_blocked"), ("success", "ayework_ended"), ("dead", "ayework_")]
)
def test_the_list_costs_the_same_with_many_gates_as_an_index_leads_to_them(
    operator, django_assert_max_num_queries, status, index
):
    for _ in range(20):
        gate_on(1)
    with django_assert_max_num_queries(6):
        queryset = operator.get(address(GATES, status=status)).context["cl"].queryset
    if connection.vendor == "sqlite":
        assert index in queryset.explain()
