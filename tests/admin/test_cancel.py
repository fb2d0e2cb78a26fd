"""Cancelling from the admin, and acting on whole groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_ayework import Retry, enqueue, enqueue_many
from django_ayework.admin import actions
from django_ayework.admin.works import WorkAdmin
from django_ayework.models import Work
from django_ayework.testing import drain
from django_ayework.testing.factories import WorkFactory
from tests.admin.kit import address, die
from tests.admin.test_retry import status, told
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db
ACTS = ["cancel", "retry"]


def press(client: Client, ids: list[str], page: str = "work_changelist", **more: str) -> Any:
    return client.post(address(page), {"action": "cancel_selected", "_selected_action": ids, **more})


def group() -> tuple[str, list[Any]]:
    """A group of three works: one is dead, two have not ended."""
    handles = enqueue_many([fail(), add(a=1, b=1), add(a=1, b=2)], together=True, retry=Retry(attempts=1))
    drain(limit=1, raises=False)
    return handles[0].id, handles


def statuses(handles: list[Any]) -> list[str]:
    return [status(handle) for handle in handles]


def test_the_action_cancels_what_was_ticked(operator: Client) -> None:
    chosen, other = [enqueue(add(a=1, b=n)) for n in range(2)], enqueue(add(a=1, b=9))
    response = press(operator, [work.id for work in chosen])
    assert statuses(chosen) == ["cancelled", "cancelled"]
    assert status(other) == "pending"
    assert told(response) == ["2 works were cancelled."]
    assert {entry.object_id for entry in LogEntry.objects.all()} == {work.id for work in chosen}
    assert "Cancelled." in operator.get(address("work_history", chosen[0].id)).content.decode()


def test_what_has_ended_is_left_alone(operator: Client) -> None:
    dead, waiting = die(), enqueue(add(a=1, b=2))
    response = press(operator, [waiting.id, dead.id])
    assert statuses([dead, waiting]) == ["dead", "cancelled"]
    assert told(response) == ["1 work was cancelled.", "1 work had ended already."]


def test_one_press_cancels_a_bounded_number_and_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "AT_ONCE", 3)
    works = WorkFactory.create_batch(5)
    response = press(operator, [works[0].id], select_across="1")
    assert "first 3 of the selection" in told(response)[1]
    assert Work.objects.filter(status="cancelled").count() == 3


def test_the_button_cancels_the_work_and_shows_it(operator: Client) -> None:
    work = enqueue(add(a=1, b=2))
    response = operator.post(address("work_cancel", work.id), follow=True)
    assert response.redirect_chain == [(address("work_change", work.id), 302)]
    assert "1 work was cancelled." in response.content.decode()
    assert status(work) == "cancelled"


@pytest.mark.parametrize(
    ("status_", "expected"), [("pending", True), ("running", True), ("blocked", True), ("dead", False)]
)
def test_the_button_is_there_for_what_has_not_ended(operator: Client, status_: str, expected: bool) -> None:
    work = WorkFactory(status=status_)
    shown = operator.get(address("work_change", work.id)).content.decode()
    assert (address("work_cancel", work.id) in shown) is expected


def test_dead_letters_are_not_to_be_cancelled(operator: Client) -> None:
    die()
    shown = operator.get(address("deadletter_changelist")).content.decode()
    assert "retry_selected" in shown
    assert "cancel_selected" not in shown


def test_looking_at_an_address_changes_nothing(operator: Client) -> None:
    id, handles = group()
    for page in ("work_cancel", "group_cancel", "group_retry"):
        assert operator.get(address(page, id)).status_code == 405
    assert statuses(handles) == ["dead", "pending", "pending"]


@pytest.mark.parametrize("page", ["work_cancel", "group_cancel", "group_retry"])
def test_what_is_not_there_is_not_found(operator: Client, page: str) -> None:
    assert operator.post(address(page, "missing")).status_code == 404


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
    [(["change_work", "view_group"], True), (["change_work"], False), (["view_work", "change_group"], False)],
)
@pytest.mark.parametrize("act", ACTS)
def test_a_group_takes_the_permission_to_see_it_and_to_change_works(
    client_with: Callable[..., Client], act: str, permissions: list[str], allowed: bool
) -> None:
    id, handles = group()
    client = client_with(*permissions)
    if "change_work" not in permissions:
        assert f"/{act}/" not in client.get(address("group_change", id)).content.decode()
    assert client.post(address(f"group_{act}", id)).status_code == (302 if allowed else 403)
    assert (statuses(handles) != ["dead", "pending", "pending"]) is allowed


def test_whoever_may_only_look_cancels_nothing(viewer: Client) -> None:
    work = enqueue(add(a=1, b=2))
    assert "cancel_selected" not in viewer.get(address("work_changelist")).content.decode()
    assert press(viewer, [work.id]).status_code == 403
    assert viewer.post(address("work_cancel", work.id)).status_code == 403
    assert status(work) == "pending"


@pytest.mark.parametrize("act", ACTS)
def test_works_that_the_admin_of_works_hides_are_left_alone(
    operator: Client, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    id, handles = group()
    hidden = handles[0 if act == "retry" else 1]
    queryset = WorkAdmin.get_queryset
    monkeypatch.setattr(
        WorkAdmin, "get_queryset", lambda self, request: queryset(self, request).exclude(id=hidden.id)
    )
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

    def is_mine(self: Any, request: Any, obj: Any = None) -> bool:
        return obj is None or obj.id != other.id

    monkeypatch.setattr(WorkAdmin, f"has_{act}_permission", is_mine)
    before, type = status(other), Work.objects.get(id=other.id).type
    assert operator.post(address(f"work_{act}", other.id)).status_code == 403
    assert told(operator.post(address(f"group_{act}", id)))[-1] == (
        f"expected a permission to {act} the work {other.id} ({type}), and you have none for it."
    )
    assert status(other) == before
