"""Retrying and cancelling works, dead letters and groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.test import Client

from django_ayework import Retry, dependency, enqueue, enqueue_many
from django_ayework.admin import action_execution
from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.testing import drain
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.admin.conftest import Page
from tests.admin.kit import address, assert_hides, assert_shows, die, hide, ids_on, messages_of, refuse
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db
LISTS = ["work_changelist", "deadletter_list"]
RETRY = {"work_changelist": "work_retry", "deadletter_list": "deadletter_retry"}
ACTS = ["cancel", "retry"]


def select(client: Client, action: str, ids: list[str], page: str = "work_changelist", **more: str) -> Any:
    return client.post(address(page), {"action": f"{action}_selected", "_selected_action": ids, **more})


def status(work: Any) -> str:
    return Work.objects.get(id=work.id).status


@pytest.mark.parametrize("page", LISTS)
def test_the_action_retries_the_selected_works_and_logs_it(operator: Client, page: str) -> None:
    works, other = [die(), die()], die()
    response = select(operator, "retry", [work.id for work in works], page)
    assert [status(work) for work in works] == ["pending", "pending"]
    assert status(other) == "dead"
    assert messages_of(response) == ["2 works were retried."]
    operator.post(address("work_retry", "missing"))
    entries = LogEntry.objects.all()
    assert {entry.object_id for entry in entries} == {work.id for work in works}
    assert {entry.user.username for entry in entries} == {"operator"}
    assert "Retried. It was dead." in operator.get(address("work_history", works[0].id)).content.decode()
    assert ids_on(operator.get(address("deadletter_list"))) == [other.id]
    assert drain(raises=False).ran == 2


def test_refusals_are_listed_in_short_and_undo_nothing(operator: Client) -> None:
    dead, waiting = die(), [enqueue(add(a=1, b=2)).id for _ in range(action_execution.SHOWN_EACH + 5)]
    messages = messages_of(select(operator, "retry", [*waiting, dead.id]))
    assert status(dead) == "pending"
    assert messages[0] == "1 work was retried."
    assert re.match(r"expected the work [\w-]+ to be dead or cancelled, but it is pending", messages[1])
    assert len(messages) == action_execution.SHOWN_EACH + 2
    assert messages[-1] == "5 more were refused."


def test_a_gate_is_retried_together_with_the_work_that_it_died_of(operator: Client) -> None:
    watched = fail()
    gate = enqueue(dependency(on=[watched], queue=[add(a=1, b=1)]))
    enqueue(watched)
    die()  # runs the other one to death, too
    [refusal] = messages_of(select(operator, "retry", [gate.id], "deadletter_list"))
    assert watched.id in refusal
    assert status(gate) == "dead"
    response = select(operator, "retry", [gate.id, watched.id], "deadletter_list")
    assert (status(watched), status(gate)) == ("pending", "blocked")
    assert messages_of(response) == [refusal, "1 work was retried.", "1 work waits again for others."]


@pytest.mark.parametrize(
    ("act", "factory", "after"),
    [("retry", DeadLetterFactory, "pending"), ("cancel", WorkFactory, "cancelled")],
)
def test_one_action_takes_a_bounded_number_of_what_the_filters_show(
    operator: Client, monkeypatch: pytest.MonkeyPatch, act: str, factory: Any, after: str
) -> None:
    monkeypatch.setattr(action_execution, "AT_ONCE", 3)
    kept, works = factory(type="shop.fail"), factory.create_batch(5)
    page = address("work_changelist", type="shop.add", status=works[0].status)
    data = {"action": f"{act}_selected", "_selected_action": [works[0].id], "select_across": "1"}
    assert "first 3 of the selection" in messages_of(operator.post(page, data))[0]
    assert Work.objects.filter(status=after).count() == 3
    left = Work.objects.filter(type="shop.add", status=works[0].status).values_list("id", flat=True)
    operator.post(page, data | {"_selected_action": list(left)})
    assert Work.objects.filter(status=after).count() == 5
    assert status(kept) == kept.status


@pytest.mark.parametrize(
    ("button", "factory", "after", "message"),
    [
        ("work_retry", DeadLetterFactory, "pending", "1 work was retried."),
        ("deadletter_retry", DeadLetterFactory, "pending", "1 work was retried."),
        ("work_cancel", WorkFactory, "cancelled", "1 work was cancelled."),
    ],
)
def test_the_button_acts_on_the_work_and_shows_it(
    operator: Client, button: str, factory: Any, after: str, message: str
) -> None:
    work = factory()
    response = operator.post(address(button, work.id), follow=True)
    assert response.redirect_chain == [(address("work_change", work.id), 302)]
    assert message in response.content.decode()
    assert status(work) == after
    if button == "work_retry":
        again = operator.post(address(button, work.id), follow=True).content.decode()
        assert "but it is pending" in again


def test_a_dead_letter_is_dead(client_with: Callable[..., Client]) -> None:
    client = client_with("change_deadletter", "retry_work")
    for status_ in ("cancelled", "success", "pending"):
        work = WorkFactory(status=status_)
        assert client.post(address("deadletter_retry", work.id)).status_code == 404
        assert status(work) == status_


@pytest.mark.parametrize("page", LISTS)
def test_a_work_outside_of_the_queryset_is_not_found_and_not_retried(
    operator: Client, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    shown, hidden = DeadLetterFactory(), DeadLetterFactory()
    hide(monkeypatch, id=hidden.id)
    assert operator.post(address(RETRY[page], hidden.id)).status_code == 404
    response = select(operator, "retry", [shown.id, hidden.id], page)
    assert messages_of(response) == ["1 work was retried."]
    assert (status(shown), status(hidden)) == ("pending", "dead")


@pytest.mark.parametrize("page", LISTS)
def test_the_permission_to_retry_is_asked_for_each_work(
    operator: Client, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    mine, other = DeadLetterFactory(), DeadLetterFactory()
    refuse(monkeypatch, "retry", other.id)
    assert operator.post(address(RETRY[page], other.id)).status_code == 403
    for more in ({}, {"select_across": "1"}):
        response = select(operator, "retry", [mine.id, other.id], page, **more)
        assert messages_of(response)[-1] == (
            f"expected a permission to retry the work {other.id} (shop.add), and you have none for it."
        )
    assert (status(mine), status(other)) == ("pending", "dead")
    assert {entry.object_id for entry in LogEntry.objects.all()} == {mine.id}


def test_ids_of_all_kinds_can_be_retried(operator: Client) -> None:
    work = die(id="eu/order_2F17")
    response = operator.post(address("work_retry", quote(work.id)), follow=True)
    assert "1 work was retried." in response.content.decode()
    assert work.id in response.content.decode()
    assert response.redirect_chain == [(address("work_change", quote(work.id)), 302)]
    assert status(work) == "pending"


def test_other_methods_other_sites_strangers_and_unknown_ids_change_nothing(
    operator: Client, client: Client
) -> None:
    work = DeadLetterFactory()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    assert strict.post(address("work_retry", work.id)).status_code == 403
    assert select(strict, "retry", [work.id], "deadletter_list").status_code == 403
    assert "login" in client.post(address("work_retry", work.id)).headers["Location"]
    id, handles = group()
    for page in ("work_retry", "work_cancel", "group_cancel", "group_retry"):
        assert operator.get(address(page, id)).status_code == 405
        assert operator.post(address(page, "missing")).status_code == 404
    assert operator.post(address("deadletter_retry", "missing")).status_code == 404
    assert statuses(handles) == ["dead", "pending", "pending"]
    assert status(work) == "dead"


def test_a_viewer_acts_on_no_dead_letters(viewer: Client, operator: Client) -> None:
    work = die()
    shown = viewer.get(address("deadletter_list")).content.decode()
    assert work.id in shown
    assert_hides(shown, "retry_selected", "cancel_selected")
    assert select(viewer, "retry", [work.id], "deadletter_list").status_code == 403
    shown = viewer.get(address("deadletter_change", work.id)).content.decode()
    assert "RuntimeError" in shown
    assert "/retry/" not in shown
    assert status(work) == "dead"
    shown = operator.get(address("deadletter_list")).content.decode()
    assert "retry_selected" in shown
    assert "cancel_selected" not in shown


@pytest.mark.parametrize(
    ("permission", "page", "allowed"),
    [
        ("view_work", "work_retry", True),
        ("change_work", "work_retry", True),  # it allows looking
        ("view_deadletter", "deadletter_retry", True),
        ("view_deadletter", "work_retry", False),
        ("view_work", "deadletter_retry", False),
        ("view_group", "work_retry", False),
    ],
)
def test_to_retry_takes_that_permission_and_one_to_look(
    client_with: Callable[..., Client], permission: str, page: str, allowed: bool
) -> None:
    work = DeadLetterFactory()
    assert client_with(permission).post(address(page, work.id)).status_code == 403
    assert status(work) == "dead"
    response = client_with(permission, "retry_work").post(address(page, work.id))
    assert response.status_code == (302 if allowed else 403)
    assert status(work) == ("pending" if allowed else "dead")
    if permission == "view_deadletter" and allowed:
        assert response.headers["Location"] == address("deadletter_changelist")


def group() -> tuple[str, list[Any]]:
    """A group of three works: one is dead, two have not ended."""
    handles = enqueue_many([fail(), add(a=1, b=1), add(a=1, b=2)], together=True, retry=Retry(attempts=1))
    drain(limit=1, raises=False)
    return handles[0].id, handles


def statuses(handles: list[Any]) -> list[str]:
    return [status(handle) for handle in handles]


def test_the_action_cancels_the_selected_works_and_logs_it(operator: Client) -> None:
    *chosen, other = [enqueue(add(a=1, b=n)) for n in range(3)]
    dead = DeadLetterFactory()
    response = select(operator, "cancel", [dead.id, *(work.id for work in chosen)])
    assert statuses([*chosen, other, dead]) == ["cancelled", "cancelled", "pending", "dead"]
    assert messages_of(response) == ["2 works were cancelled.", "1 work had ended already."]
    assert {entry.object_id for entry in LogEntry.objects.all()} == {work.id for work in chosen}
    assert (
        "Cancelled. It was pending." in operator.get(address("work_history", chosen[0].id)).content.decode()
    )


def test_a_page_has_the_buttons_of_its_status(page: Page) -> None:
    def buttons(status: Status) -> list[str]:
        work = WorkFactory(status=status)
        shown = page("work_change", work.id)
        return [act for act in ACTS if address(f"work_{act}", work.id) in shown]

    assert {status.value: buttons(status) for status in Status} == {
        "pending": ["cancel"],
        "scheduled": ["cancel"],
        "running": ["cancel"],
        "blocked": ["cancel"],
        "success": [],
        "dead": ["retry"],
        "cancelled": ["retry"],
    }


def test_the_works_of_a_group_that_have_not_ended_are_cancelled(operator: Client) -> None:
    id, handles = group()
    assert address("group_cancel", id) in operator.get(address("group_change", id)).content.decode()
    response = operator.post(address("group_cancel", id), follow=True)
    assert response.redirect_chain == [(address("group_change", id), 302)]
    assert "2 works were cancelled." in response.content.decode()
    assert address("group_cancel", id) not in response.content.decode()
    assert statuses(handles) == ["dead", "cancelled", "cancelled"]


def test_the_dead_and_cancelled_works_of_a_group_are_retried(operator: Client) -> None:
    id, handles = group()
    handles[1].cancel()
    assert address("group_retry", id) in operator.get(address("group_change", id)).content.decode()
    response = operator.post(address("group_retry", id), follow=True)
    assert "2 works were retried." in response.content.decode()
    assert address("group_retry", id) not in response.content.decode()
    assert statuses(handles) == ["pending", "pending", "pending"]
    assert {entry.object_id for entry in LogEntry.objects.all()} == {handles[0].id, handles[1].id}


@pytest.mark.parametrize(
    ("permissions", "allowed"),
    [(["view_work", "view_group"], True), (["view_work"], False), (["change_work", "change_group"], False)],
)
@pytest.mark.parametrize("act", ACTS)
def test_a_group_takes_the_permissions_to_see_it_and_to_act_on_works(
    client_with: Callable[..., Client], act: str, permissions: list[str], allowed: bool
) -> None:
    id, handles = group()
    client = client_with(*permissions, *([f"{act}_work"] if "view_work" in permissions else []))
    if "view_work" not in permissions:
        assert f"/{act}/" not in client.get(address("group_change", id)).content.decode()
    assert client.post(address(f"group_{act}", id)).status_code == (302 if allowed else 403)
    assert (statuses(handles) != ["dead", "pending", "pending"]) is allowed


@pytest.mark.parametrize("act", ACTS)
def test_works_that_the_admin_of_works_hides_are_left_alone(
    operator: Client, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    id, handles = group()
    hidden = handles[0 if act == "retry" else 1]
    hide(monkeypatch, id=hidden.id)
    before = status(hidden)
    operator.post(address(f"group_{act}", id))
    assert operator.post(address(f"work_{act}", hidden.id)).status_code == 404
    assert status(hidden) == before


@pytest.mark.parametrize("act", ACTS)
def test_the_permission_is_asked_for_each_work_of_a_group(
    operator: Client, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    id, handles = group()
    other = handles[0 if act == "retry" else 1]
    refuse(monkeypatch, act, other.id)
    before, type = status(other), Work.objects.get(id=other.id).type
    assert operator.post(address(f"work_{act}", other.id)).status_code == 403
    assert messages_of(operator.post(address(f"group_{act}", id)))[-1] == (
        f"expected a permission to {act} the work {other.id} ({type}), and you have none for it."
    )
    assert status(other) == before


def test_a_button_that_was_pressed_after_the_session_had_ended_is_not_pressed_by_signing_in(db: None) -> None:
    dead, client = die(), Client()
    get_user_model().objects.create_superuser("late", password="late")
    login = client.post(address("work_retry", dead.id))["Location"]
    response = client.post(login, {"username": "late", "password": "late"}, follow=True)
    assert (response.status_code, response["Allow"]) == (405, "POST")
    assert_shows(response.content.decode(), "Nothing was done", "press the button again")
    dead.refresh_from_db()
    assert dead.status == "dead"
