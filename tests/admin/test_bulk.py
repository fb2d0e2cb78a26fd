"""Bulk actions in the admin: asked, created, watched, stopped, resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_ayework import enqueue_many
from django_ayework.admin.dead_letters import DeadLetterAdmin
from django_ayework.admin.gates import GateAdmin
from django_ayework.admin.works import WorkAdmin
from django_ayework.flow import bulk_actions
from django_ayework.flow.bulk_actions import create, run_bulk_actions, step
from django_ayework.models import BulkAction, Work
from django_ayework.store.database import clock
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.admin.kit import address, assert_hides, assert_shows, hide
from tests.app.works import add
from tests.bulk.kit import dead_works, retry_all

pytestmark = pytest.mark.django_db
NEW = "bulkaction_new"
XSS = "<script>alert(1)</script>"


def text_of(client: Client, name: str, *args: str, **query: str) -> str:
    response = client.get(address(name, *args, **query))
    assert response.status_code == 200, response
    return response.content.decode()


def test_it_asks_first_and_then_the_request_costs_the_same_for_any_number(
    operator: Client, django_assert_max_num_queries: Any
) -> None:
    dead_works(30)
    url = address(NEW, action="retry", status="dead", type="shop.fail")
    question = operator.get(url)
    assert question.context["title"] == "Retry: 30 works"
    assert_shows(question.content.decode(), "shop.fail", "admin/css/forms.css")
    with django_assert_max_num_queries(20):
        response = operator.post(url, {"per_minute": "100"})
    row = BulkAction.objects.get()
    assert response.headers["Location"] == address("bulkaction_change", row.pk)
    assert (row.action, row.per_minute, row.expected, row.created_by) == ("retry", 100, 30, "operator")
    assert not Work.objects.filter(status="pending").exists()
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.is_addition()) == (row.pk, True)
    assert entry.change_message == "Retry: 30 works. status: dead; type: shop.fail. 100 per minute."
    run_bulk_actions()
    assert Work.objects.filter(status="pending").count() == 30


def test_works_that_died_after_the_question_was_shown_are_left_alone(operator: Client) -> None:
    dead_works(2)
    seen = clock.now()
    dead_works(1)
    url = address(NEW, action="retry", status="dead")
    operator.post(url, {"per_minute": "", "until": seen.isoformat()})
    operator.post(url, {"per_minute": "", "until": "never"})
    operator.post(url, {"per_minute": "", "until": "9999-01-01T00:00:00+00:00"})
    assert list(BulkAction.objects.order_by("id").values_list("expected", flat=True)) == [2, 3, 3]


@pytest.mark.parametrize("pace", ["0", "-1", "much"])
def test_a_pace_that_cannot_be_is_refused_in_the_form(operator: Client, pace: str) -> None:
    dead_works(1)
    response = operator.post(address(NEW, action="retry"), {"per_minute": pace})
    assert response.status_code == 200
    assert "errorlist" in response.content.decode()
    assert not BulkAction.objects.exists()


def test_a_filter_that_cannot_be_is_refused_in_a_sentence(operator: Client) -> None:
    response = operator.get(address(NEW, action="retry", colour=XSS))
    assert response.status_code == 400
    assert "expected parameters among" in response.content.decode()
    for query in ({"status": XSS}, {"day": XSS}, {XSS: "1"}, {"priority": XSS}):
        response = operator.get(address(NEW, action="retry", **query))
        assert response.status_code == 400
        assert XSS not in response.content.decode()


def test_an_unknown_act_is_refused(operator: Client) -> None:
    assert operator.get(address(NEW, action="explode")).status_code == 403


def test_parameters_are_asked_for(operator: Client) -> None:
    handles = enqueue_many([add(a=1, b=2) for _ in range(3)])
    url = address(NEW, action="change_priority", type="shop.add")
    assert "errorlist" in operator.post(url, {"per_minute": ""}).content.decode()
    operator.post(url, {"per_minute": "", "with-priority": "7"})
    run_bulk_actions()
    assert set(Work.objects.values_list("priority", flat=True)) == {7}
    assert len(handles) == 3


def test_without_an_act_the_page_offers_those_that_apply(operator: Client) -> None:
    dead_works(1)
    offered = [action.name for action, _url in operator.get(address(NEW, status="dead")).context["acts"]]
    assert offered == ["retry", "delete_chains"]
    offered = [action.name for action, _url in operator.get(address(NEW)).context["acts"]]
    assert len(offered) == 8


def test_explicit_ids_are_taken(operator: Client) -> None:
    ids = dead_works(3)
    asked = operator.get(address(NEW, action="retry", ids=",".join(ids[:2])))
    assert asked.context["title"] == "Retry: 2 works"


# The page


def test_the_page_shows_how_far_it_is(operator: Client) -> None:
    dead_works(30)
    row = retry_all(by="ann")
    assert "0 of 30" in text_of(operator, "bulkaction_change", row.pk)
    step()
    shown = text_of(operator, "bulkaction_change", row.pk)
    assert_shows(shown, "25 of 30", address("bulkaction_stop", row.pk))
    run_bulk_actions()
    shown = text_of(operator, "bulkaction_change", row.pk)
    assert "data-live-done" in shown
    assert_hides(shown, address("bulkaction_stop", row.pk), address("bulkaction_resume", row.pk))
    listed = text_of(operator, "bulkaction_changelist")
    assert_shows(listed, "Retry: 30 works", "ann")


def test_the_fragment_is_not_sent_again_while_nothing_changes(operator: Client) -> None:
    row = retry_all()
    run_bulk_actions()
    first = operator.get(address("bulkaction_live", row.pk))
    assert "csrf" not in first.content.decode()
    again = operator.get(address("bulkaction_live", row.pk), headers={"If-None-Match": first["ETag"]})
    assert again.status_code == 304


def test_refusals_and_errors_stay_text(operator: Client) -> None:
    WorkFactory(id="w1", status="cancelled", type=XSS)
    row = create("retry", {"type": XSS}, by=XSS)
    BulkAction.objects.update(report=f'[["", "{XSS}"], ["{XSS}", "{XSS}"]]', refused=30, status="failed")
    for name in ("bulkaction_change", "bulkaction_live"):
        shown = text_of(operator, name, row.pk)
        assert XSS not in shown
        assert "and 29 more" in shown
    assert XSS not in text_of(operator, "bulkaction_changelist")


@pytest.mark.parametrize(
    ("expected", "title"), [(10_001, "more than 10,000 works"), (bulk_actions.UNKNOWN, "all matching")]
)
def test_a_total_that_is_not_known_is_not_shown(operator: Client, expected: int, title: str) -> None:
    row = retry_all()
    BulkAction.objects.update(expected=expected)
    assert title in text_of(operator, "bulkaction_change", row.pk)
    assert title in text_of(operator, "bulkaction_changelist")


def test_an_act_of_another_version_is_shown(operator: Client) -> None:
    row = retry_all()
    BulkAction.objects.update(action="from_the_future")
    assert "from_the_future" in text_of(operator, "bulkaction_change", row.pk)


def test_it_is_stopped_and_resumed_by_a_button_and_logged(operator: Client) -> None:
    dead_works(30)
    row = retry_all()
    step()
    assert operator.get(address("bulkaction_stop", row.pk)).status_code == 405
    operator.post(address("bulkaction_stop", row.pk))
    assert step() is False
    shown = text_of(operator, "bulkaction_change", row.pk)
    assert address("bulkaction_resume", row.pk) in shown
    again = operator.post(address("bulkaction_stop", row.pk), follow=True)
    assert "It is stopped now." in again.content.decode()
    operator.post(address("bulkaction_resume", row.pk))
    run_bulk_actions()
    assert BulkAction.objects.get().done == 30
    messages = list(LogEntry.objects.order_by("id").values_list("change_message", flat=True))
    assert messages == ["Stopped. It was running.", "Resumed. It was stopped."]
    assert operator.post(address("bulkaction_stop", "missing")).status_code == 404


# Permissions


@pytest.mark.parametrize(
    ("permissions", "may_look", "may_act"),
    [
        (("view_work", "retry_work"), False, False),
        (("view_bulkaction",), True, False),
        (("view_bulkaction", "retry_work"), True, False),
        (("bulk_work",), True, False),
        (("bulk_work", "cancel_work"), True, False),
        (("bulk_work", "retry_work"), True, True),
    ],
)
def test_it_takes_the_permission_of_the_act_and_that_of_bulk_actions(
    client_with: Callable[..., Client], permissions: tuple[str, ...], may_look: bool, may_act: bool
) -> None:
    dead_works(1)
    row = retry_all()
    client = client_with(*permissions)
    assert (client.get(address("bulkaction_change", row.pk)).status_code == 200) is may_look
    assert (client.get(address("bulkaction_live", row.pk)).status_code == 200) is may_look
    for name in ("bulkaction_stop", "bulkaction_resume"):
        assert (client.post(address(name, row.pk)).status_code == 302) is may_act
    url = address(NEW, action="retry")
    assert (client.get(url).status_code == 200) is may_act
    assert (client.post(url, {"per_minute": ""}).status_code == 302) is may_act
    assert BulkAction.objects.count() == 1 + may_act


def test_an_overridden_permission_is_asked_without_a_work(operator: Client, monkeypatch: Any) -> None:
    asked = []

    def has_retry_permission(self: Any, request: Any, obj: Any = None) -> bool:
        asked.append(obj)
        return False

    monkeypatch.setattr(WorkAdmin, "has_retry_permission", has_retry_permission)
    assert operator.get(address(NEW, action="retry")).status_code == 403
    assert asked == [None]


@pytest.mark.parametrize("narrowed", [WorkAdmin, DeadLetterAdmin, GateAdmin])
def test_a_user_from_whom_an_admin_hides_works_cannot_act_on_works_in_bulk(
    operator: Client, monkeypatch: Any, narrowed: type[WorkAdmin]
) -> None:
    ids = dead_works(2)
    row = retry_all()
    hide(monkeypatch, narrowed, id=ids[0])
    for filter in ({"status": "dead"}, {"ids": ids[0]}):
        url = address(NEW, action="retry", **filter)
        assert operator.get(url).status_code == 403
        assert operator.post(url, {"per_minute": ""}).status_code == 403
    assert operator.get(address(NEW)).status_code == 403
    for name in ("bulkaction_stop", "bulkaction_resume"):
        assert operator.post(address(name, row.pk)).status_code == 403
    assert [each.pk for each in BulkAction.objects.filter(status="running")] == [row.pk]
    for page in ("work_changelist", "deadletter_list"):
        assert operator.get(address(page)).context["bulk"] is None


def test_a_queryset_that_hides_nothing_keeps_bulk_actions(operator: Client, monkeypatch: Any) -> None:
    dead_works(1)
    queryset = WorkAdmin.get_queryset
    monkeypatch.setattr(WorkAdmin, "get_queryset", lambda self, request: queryset(self, request).only("id"))
    assert operator.get(address(NEW, action="retry")).context["title"] == "Retry: 1 work"
    assert operator.get(address("deadletter_list")).context["bulk"] is not None


# The links of the lists


def test_the_list_of_works_links_to_all_that_match(
    operator: Client, client_with: Callable[..., Client]
) -> None:
    dead_works(3)
    WorkFactory()
    assert "Act on all 4…" in text_of(operator, "work_changelist")
    response = operator.get(address("work_changelist", type="shop.fail", p="1"))
    assert "Act on all 3 matching…" in response.content.decode()
    assert "type=shop.fail" in response.context["bulk"]["url"]
    assert operator.get(response.context["bulk"]["url"]).status_code == 200
    assert operator.get(address("work_changelist", q="shop.fail")).context["bulk"] is None
    assert operator.get(address("work_changelist", type="shop.gone")).context["bulk"] is None
    dead = operator.get(address("deadletter_list", reason="exhausted"))
    assert "status=dead" in dead.context["bulk"]["url"]
    viewer = client_with("view_work", "retry_work")
    assert viewer.get(address("work_changelist")).context["bulk"] is None


def test_a_site_without_bulk_actions_has_no_links(operator: Client, monkeypatch: Any) -> None:
    DeadLetterFactory()
    monkeypatch.delitem(admin.site._registry, BulkAction)
    response = operator.get(address("deadletter_changelist"))
    assert response.status_code == 200
    assert "Retry all" not in response.content.decode()
