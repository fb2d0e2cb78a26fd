"""Retrying from the admin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.messages import get_messages
from django.test import Client

from django_ayework import dependency, enqueue
from django_ayework.admin import actions
from django_ayework.admin.works import WorkAdmin
from django_ayework.models import Work
from django_ayework.testing import drain
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.admin.kit import address, die, ids_on
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db
LISTS = ["work_changelist", "deadletter_changelist"]
RETRY = {"work_changelist": "work_retry", "deadletter_changelist": "deadletter_retry"}


def press(client: Client, ids: list[str], page: str = "deadletter_changelist", **more: str) -> Any:
    return client.post(address(page), {"action": "retry_selected", "_selected_action": ids, **more})


def told(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def status(work: Any) -> str:
    return Work.objects.get(id=work.id).status


@pytest.mark.parametrize("page", LISTS)
def test_the_action_retries_what_was_ticked(operator: Client, page: str) -> None:
    chosen, other = [die(), die()], die()
    response = press(operator, [work.id for work in chosen], page)
    assert [status(work) for work in chosen] == ["pending", "pending"]
    assert status(other) == "dead"
    assert told(response) == ["2 works were retried."]


def test_a_retried_work_leaves_the_dead_letters_and_runs_again(operator: Client) -> None:
    work = die()
    press(operator, [work.id])
    assert ids_on(operator.get(address("deadletter_changelist"))) == []
    assert drain(raises=False).ran == 1


def test_a_refusal_is_told_and_undoes_nothing(operator: Client) -> None:
    dead, waiting = die(), enqueue(add(a=1, b=2))
    response = press(operator, [waiting.id, dead.id], "work_changelist")
    assert status(dead) == "pending"
    told_of = told(response)
    assert told_of[0] == "1 work was retried."
    assert f"expected the work {waiting.id} to be dead or cancelled, but it is pending" in told_of[1]


def test_many_refusals_are_told_in_short(operator: Client) -> None:
    ids = [enqueue(add(a=1, b=2)).id for _ in range(actions.REFUSALS_SHOWN + 5)]
    told_of = told(press(operator, ids, "work_changelist"))
    assert len(told_of) == actions.REFUSALS_SHOWN + 1
    assert told_of[-1] == "5 more were refused."


def test_the_member_that_killed_a_gate_and_the_gate_can_be_retried_together(operator: Client) -> None:
    watched = fail()
    gate = enqueue(dependency(on=[watched], queue=[add(a=1, b=1)]))
    enqueue(watched)
    die()  # runs the other one to death, too
    assert status(gate) == "dead"
    response = press(operator, [gate.id, watched.id])
    assert (status(watched), status(gate)) == ("pending", "blocked")
    assert told(response) == ["1 work was retried.", "1 work waits again for others."]


def test_a_gate_alone_names_what_to_retry_first(operator: Client) -> None:
    dead = die()
    gate = enqueue(dependency(on=[dead.id], queue=[add(a=1, b=1)]))
    drain()
    assert dead.id in told(press(operator, [gate.id]))[0]
    assert status(gate) == "dead"


def test_one_press_retries_a_bounded_number_and_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "AT_ONCE", 3)
    works = DeadLetterFactory.create_batch(5)
    response = press(operator, [works[0].id], select_across="1")
    assert "first 3 of the selection" in told(response)[1]
    assert Work.objects.filter(status="pending").count() == 3
    press(operator, [work.id for work in works], select_across="1")
    assert Work.objects.filter(status="pending").count() == 5


def test_select_all_retries_what_the_filters_show(operator: Client) -> None:
    kept, chosen = DeadLetterFactory(reason="aborted"), DeadLetterFactory(reason="expired")
    operator.post(
        address("deadletter_changelist", reason="expired"),
        {"action": "retry_selected", "_selected_action": [chosen.id], "select_across": "1"},
    )
    assert (status(chosen), status(kept)) == ("pending", "dead")


@pytest.mark.parametrize("page", LISTS)
def test_the_button_retries_the_work_and_shows_it(operator: Client, page: str) -> None:
    work = die()
    response = operator.post(address(RETRY[page], work.id), follow=True)
    assert response.redirect_chain == [(address("work_change", work.id), 302)]
    assert "1 work was retried." in response.content.decode()
    assert status(work) == "pending"


def test_the_button_is_there_for_what_can_be_retried_only(operator: Client) -> None:
    dead, cancelled = die(), WorkFactory(status="cancelled")
    waiting, done = WorkFactory(), WorkFactory(status="success")
    for work, expected in ((dead, True), (cancelled, True), (waiting, False), (done, False)):
        shown = operator.get(address("work_change", work.id)).content.decode()
        assert (address("work_retry", work.id) in shown) is expected


def test_a_work_that_moved_on_in_the_meantime_is_refused_in_words(operator: Client) -> None:
    work = die()
    operator.post(address("work_retry", work.id))
    response = operator.post(address("work_retry", work.id), follow=True)
    assert "but it is pending" in response.content.decode()


@pytest.mark.parametrize("page", RETRY.values())
def test_a_work_that_is_gone_is_not_found(operator: Client, page: str) -> None:
    response = operator.post(address(page, "missing"))
    assert response.status_code == 404


@pytest.mark.parametrize("status_", ["cancelled", "success", "pending"])
def test_a_dead_letter_is_dead(client_with: Callable[..., Client], status_: str) -> None:
    work = WorkFactory(status=status_)
    response = client_with("change_deadletter").post(address("deadletter_retry", work.id))
    assert response.status_code == 404
    assert status(work) == status_


@pytest.mark.parametrize("page", LISTS)
def test_a_work_outside_of_the_queryset_is_not_found_and_not_retried(
    operator: Client, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    shown, hidden = die(), die()
    queryset = WorkAdmin.get_queryset

    def narrowed(self: Any, request: Any) -> Any:
        return queryset(self, request).exclude(id=hidden.id)

    monkeypatch.setattr(WorkAdmin, "get_queryset", narrowed)
    assert operator.post(address(RETRY[page], hidden.id)).status_code == 404
    response = press(operator, [shown.id, hidden.id], page)
    assert told(response) == ["1 work was retried."]
    assert (status(shown), status(hidden)) == ("pending", "dead")


@pytest.mark.parametrize("page", LISTS)
def test_the_permission_to_retry_is_asked_for_each_work(
    operator: Client, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    mine, other = die(), die(message="of somebody else")

    def is_mine(self: Any, request: Any, obj: Any = None) -> bool:
        return obj is None or "of somebody else" not in obj.input

    monkeypatch.setattr(WorkAdmin, "has_retry_permission", is_mine)
    assert operator.post(address(RETRY[page], other.id)).status_code == 403
    for more in ({}, {"select_across": "1"}):
        response = press(operator, [mine.id, other.id], page, **more)
        assert told(response)[-1] == (
            f"expected a permission to retry the work {other.id} (shop.fail), and you have none for it."
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


def test_looking_at_the_address_retries_nothing(operator: Client) -> None:
    work = die()
    assert operator.get(address("work_retry", work.id)).status_code == 405
    assert status(work) == "dead"


def test_a_post_from_elsewhere_is_refused(operator: Client) -> None:
    work = die()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    assert strict.post(address("work_retry", work.id)).status_code == 403
    assert press(strict, [work.id]).status_code == 403
    assert status(work) == "dead"


def test_whoever_may_only_look_can_retry_nothing(viewer: Client) -> None:
    work = die()
    for page in LISTS:
        shown = viewer.get(address(page)).content.decode()
        assert work.id in shown
        assert "retry_selected" not in shown
        assert press(viewer, [work.id], page).status_code == 403
        assert viewer.post(address(RETRY[page], work.id)).status_code == 403
    for page in ("work_change", "deadletter_change"):
        shown = viewer.get(address(page, work.id)).content.decode()
        assert "RuntimeError" in shown
        assert "/retry/" not in shown
    assert status(work) == "dead"


def test_a_stranger_is_asked_to_sign_in(client: Client) -> None:
    work = die()
    assert "login" in client.post(address("work_retry", work.id)).headers["Location"]
    assert status(work) == "dead"


@pytest.mark.parametrize(
    ("permission", "page", "allowed"),
    [
        ("change_work", "work_retry", True),
        ("change_work", "deadletter_retry", True),
        ("change_deadletter", "deadletter_retry", True),
        ("change_deadletter", "work_retry", False),  # it may be cancelled, and that is another's decision
        ("view_work", "work_retry", False),
        ("change_group", "work_retry", False),
    ],
)
def test_the_permission_to_change_is_the_permission_to_retry(
    client_with: Callable[..., Client], permission: str, page: str, allowed: bool
) -> None:
    work = die()
    response = client_with(permission).post(address(page, work.id))
    assert response.status_code == (302 if allowed else 403)
    assert status(work) == ("pending" if allowed else "dead")


def test_whoever_retries_dead_letters_only_returns_to_their_list(client_with: Callable[..., Client]) -> None:
    response = client_with("change_deadletter").post(address("deadletter_retry", die().id), follow=True)
    assert response.redirect_chain == [(address("deadletter_changelist"), 302)]


@pytest.mark.parametrize("page", LISTS)
def test_the_log_tells_who_retried_what(operator: Client, page: str) -> None:
    works = [die(), die()]
    press(operator, [work.id for work in works], page)
    operator.post(address("work_retry", "missing"))
    entries = LogEntry.objects.all()
    assert {entry.object_id for entry in entries} == {work.id for work in works}
    assert {entry.user.username for entry in entries} == {"operator"}
    assert "Retried." in operator.get(address("work_history", works[0].id)).content.decode()
