"""Deleting chains from the admin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.test import Client

from django_ayework import enqueue
from django_ayework.admin import actions
from django_ayework.admin.works import WorkAdmin
from django_ayework.models import Work
from django_ayework.testing import drain
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.admin.kit import address, die
from tests.admin.test_retry import LISTS, told
from tests.app.works import add
from tests.chains.kit import steps_of
from tests.chains.test_blockers import gather
from tests.chains.test_chains import count

pytestmark = pytest.mark.django_db


def press(client: Client, ids: list[str], page: str = "work_changelist", **more: str) -> Any:
    return client.post(address(page), {"action": "delete_chains_selected", "_selected_action": ids, **more})


def confirm(client: Client, ids: list[str], page: str = "work_changelist") -> Any:
    return press(client, ids, page, post="yes")


def left() -> set[str]:
    return set(Work.objects.values_list("id", flat=True))


def test_it_is_asked_first_and_the_page_says_what_would_go(operator: Client) -> None:
    chain, other = enqueue(count(n=0, until=2)), enqueue(add(a=1, b=1), delay=60)
    drain()
    before = left()
    response = press(operator, [steps_of(chain.id)[1].id, other.id])
    text = response.content.decode()
    assert response.status_code == 200
    assert "Are you sure you want to delete the chains of the selected works?" in text
    assert response.context["model_count"] == [("chains", 2), ("works", 4)]
    assert all(address("work_change", id) in text for id in before)
    assert left() == before


@pytest.mark.parametrize("page", LISTS)
def test_once_confirmed_the_chains_go_whole(operator: Client, page: str) -> None:
    works, kept = [die(), die()], WorkFactory()
    response = confirm(operator, [work.id for work in works], page)
    assert response.status_code == 302
    assert told(response) == ["2 chains were deleted."]
    assert left() == {kept.id}


def test_the_chain_of_a_later_work_is_the_whole_one(operator: Client) -> None:
    chain = enqueue(count(n=0, until=2))
    drain()
    steps = [step.id for step in steps_of(chain.id)]
    response = confirm(operator, steps[1:])
    assert told(response) == ["1 chain was deleted."]
    assert left() == set()
    logged = LogEntry.objects.filter(action_flag=DELETION)
    assert {entry.object_id for entry in logged} == set(steps[1:])
    assert {entry.user.username for entry in logged} == {"operator"}
    assert "Deleted with its chain." in {entry.get_change_message() for entry in logged}


def test_a_chain_that_blocks_a_work_is_refused_in_words_and_nothing_is_logged(operator: Client) -> None:
    blocker, other = enqueue(add(a=1, b=1)), enqueue(add(a=1, b=1))
    waiting = enqueue(gather(), blockers=[blocker])
    response = confirm(operator, [blocker.id, other.id])
    [message] = told(response)
    assert f"{blocker.id} blocks the work {waiting.id}; nothing was deleted" in message
    assert left() == {blocker.id, other.id, waiting.id}
    assert not LogEntry.objects.exists()


def test_what_is_gone_by_then_is_passed_over(operator: Client) -> None:
    work, gone = WorkFactory(), WorkFactory()
    press(operator, [work.id, gone.id])
    gone.delete()
    assert told(confirm(operator, [work.id, gone.id])) == ["1 chain was deleted."]


def test_a_bounded_number_goes_at_once_and_the_page_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "AT_ONCE", 3)
    monkeypatch.setattr(actions, "SHOWN", 2)
    works = DeadLetterFactory.create_batch(5)
    response = press(operator, [works[0].id], select_across="1")
    text = response.content.decode()
    assert "first 3 of the selection" in text
    assert "and 1 more" in text
    ids = [work.pk for work in response.context["queryset"]]
    assert text.count('name="_selected_action"') == len(ids) == 3
    confirm(operator, ids)
    assert left() == {work.id for work in works} - set(ids)


def test_the_page_takes_a_bounded_number_of_queries(
    operator: Client, django_assert_max_num_queries: Any
) -> None:
    ids = [work.id for work in DeadLetterFactory.create_batch(30)]
    with django_assert_max_num_queries(8):
        press(operator, ids)


@pytest.mark.parametrize(
    ("permission", "page", "allowed"),
    [
        ("delete_work", "work_changelist", True),
        ("delete_work", "deadletter_changelist", True),
        ("delete_deadletter", "deadletter_changelist", True),
        ("delete_deadletter", "work_changelist", False),
        ("change_work", "work_changelist", False),
        ("delete_group", "work_changelist", False),
    ],
)
def test_the_permission_to_delete_is_the_permission_to_delete_chains(
    client_with: Callable[..., Client], permission: str, page: str, allowed: bool
) -> None:
    work = die()
    client = client_with(permission, "view_work", "view_deadletter")
    assert ("delete_chains_selected" in client.get(address(page)).content.decode()) is allowed
    confirm(client, [work.id], page)
    assert (work.id not in left()) is allowed


def test_whoever_may_only_look_deletes_nothing(viewer: Client) -> None:
    work = die()
    for page in LISTS:
        assert confirm(viewer, [work.id], page).status_code == 403
    assert work.id in left()


def test_whoever_may_only_delete_retries_nothing(client_with: Callable[..., Client]) -> None:
    work = die()
    client = client_with("delete_work", "view_work")
    client.post(address("work_changelist"), {"action": "retry_selected", "_selected_action": [work.id]})
    assert Work.objects.get().status == "dead"


def test_the_permission_is_asked_for_each_work(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    may, may_not = WorkFactory(), WorkFactory()
    monkeypatch.setattr(
        WorkAdmin, "has_delete_chains_permission", lambda self, request, obj=None: obj is None or obj == may
    )
    response = press(operator, [may.id, may_not.id])
    assert response.context["model_count"] == [("chains", 1), ("works", 1)]
    refusal, done = told(confirm(operator, [may.id, may_not.id]))
    assert refusal == (
        f"expected a permission to delete the chain of the work {may_not.id} ({may_not.type}), "
        "and you have none for it."
    )
    assert done == "1 chain was deleted."
    assert left() == {may_not.id}
