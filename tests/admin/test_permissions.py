"""Deleting chains, and permissions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import pytest
from django.contrib import admin
from django.contrib.admin.models import DELETION, LogEntry
from django.test import Client, RequestFactory

from django_ayework import Context, enqueue, work
from django_ayework.admin import action_execution
from django_ayework.models import DeadLetter, Group, Work, WorkerProcess
from django_ayework.testing import drain
from django_ayework.testing.factories import (
    DeadLetterFactory,
    GroupFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.admin.kit import address, assert_shows, hide, messages_of, refuse
from tests.admin.test_acting import LISTS
from tests.app.works import add

pytestmark = pytest.mark.django_db
MODELS: list[Any] = [Work, DeadLetter, Group, WorkerProcess]


def press(client: Client, ids: list[str], page: str = "work_changelist", **more: str) -> Any:
    return client.post(address(page), {"action": "delete_chains_selected", "_selected_action": ids, **more})


def confirm(client: Client, ids: list[str], page: str = "work_changelist") -> Any:
    return press(client, ids, page, post="yes")


@work(name="admin.count")
def count(ctx: Context, n: int, until: int) -> Any:
    return ctx.result(n) if n == until else ctx.continue_with(count(n=n + 1, until=until))


def chain_of_three() -> list[str]:
    """Run a chain; return the ids of its works."""
    handle = enqueue(count(n=0, until=2))
    drain()
    chain = handle.chain_state()
    assert chain is not None
    return [step.id for step in chain.steps]


def in_part(id: str, count: int) -> str:
    """Return the refusal of a chain with so many works that the user may not delete."""
    return (
        f"expected you to be allowed to see and delete all works of the chain of {id} (admin.count), and you "
        f"are not allowed to for {count} of them; ask somebody who is."
    )


def left() -> set[str]:
    return set(Work.objects.values_list("id", flat=True))


def test_a_page_asks_first_and_names_the_works(operator: Client, django_assert_max_num_queries: Any) -> None:
    steps, other = chain_of_three(), enqueue(add(a=1, b=1), delay=60)
    before = left()
    response = press(operator, [steps[1], other.id])
    text = response.content.decode()
    assert response.status_code == 200
    assert "Are you sure you want to delete the chains of the selected works?" in text
    assert response.context["model_count"] == [("chains", 2), ("works", 4)]
    assert all(address("work_change", id) in text for id in before)
    assert left() == before
    ids = [work.id for work in DeadLetterFactory.create_batch(30)]
    with django_assert_max_num_queries(14):  # four of them for the choices of filters
        press(operator, ids)


def test_the_chain_of_a_later_work_is_the_whole_one(operator: Client) -> None:
    steps = chain_of_three()
    response = confirm(operator, steps[1:])
    assert messages_of(response) == ["2 works were deleted with their chains."]
    assert left() == set()
    logged = LogEntry.objects.filter(action_flag=DELETION)
    assert {entry.object_id for entry in logged} == set(steps[1:])
    assert {entry.user.username for entry in logged} == {"operator"}
    assert "Deleted with its chain. It was success." in {entry.get_change_message() for entry in logged}


def test_a_chain_that_blocks_a_work_is_refused_in_words_and_the_others_go(operator: Client) -> None:
    blocker, other = enqueue(add(a=1, b=1)), enqueue(add(a=1, b=1))
    waiting = enqueue(add(a=2, b=2), blockers=[blocker])
    response = confirm(operator, [blocker.id, other.id])
    done, refusal = messages_of(response)
    assert done == "1 work was deleted with its chain."
    assert f"{blocker.id} blocks the work {waiting.id}; it was not deleted" in refusal
    assert left() == {blocker.id, waiting.id}
    assert [entry.object_id for entry in LogEntry.objects.all()] == [other.id]
    confirm(operator, [blocker.id, waiting.id])
    assert left() == set()


@pytest.mark.parametrize("page", LISTS)
def test_confirmed_chains_are_deleted_and_missing_ones_are_passed_over(operator: Client, page: str) -> None:
    *works, gone = DeadLetterFactory.create_batch(3)
    kept, ids = WorkFactory(), [work.id for work in (*works, gone)]
    press(operator, ids, page)
    gone.delete()
    response = confirm(operator, ids, page)
    assert response.status_code == 302
    assert messages_of(response) == ["2 works were deleted with their chains."]
    assert left() == {kept.id}


def test_a_chain_with_a_hidden_work_is_refused_and_the_others_go(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = chain_of_three()
    alone = enqueue(add(a=1, b=1))
    hide(monkeypatch, pk__in=others)
    response = confirm(operator, [first, alone.id])
    assert messages_of(response) == ["1 work was deleted with its chain.", in_part(first, 2)]
    assert left() == {first, *others}


def test_a_chain_with_a_work_that_the_user_may_not_delete_is_refused(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = chain_of_three()
    refuse(monkeypatch, "delete_chains", third)
    response = operator.post(address("work_delete_chains", second), {"post": "yes"})
    assert messages_of(response) == [in_part(second, 1)]
    assert left() == {first, second, third}


def test_a_bounded_number_goes_at_once_and_the_page_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(action_execution, "AT_ONCE", 3)
    monkeypatch.setattr(action_execution, "SHOWN", 2)
    works = DeadLetterFactory.create_batch(5)
    response = press(operator, [works[0].id], select_across="1")
    text = response.content.decode()
    assert_shows(text, "first 3 of the selection", "and 1 more")
    ids = [work.pk for work in response.context["queryset"]]
    assert text.count('name="_selected_action"') == len(ids) == 3
    confirm(operator, ids)
    assert left() == {work.id for work in works} - set(ids)


@pytest.mark.parametrize(
    ("permission", "page", "allowed"),
    [
        ("delete_work", "work_changelist", True),
        ("delete_work", "deadletter_list", True),
        ("delete_deadletter", "deadletter_list", True),
        ("delete_deadletter", "work_changelist", False),
        ("change_work", "work_changelist", False),
        ("delete_group", "work_changelist", False),
        ("view_group", "work_changelist", False),
        ("view_group", "deadletter_list", False),
    ],
)
def test_the_permission_to_delete_is_the_permission_to_delete_chains(
    client_with: Callable[..., Client], permission: str, page: str, allowed: bool
) -> None:
    work = DeadLetterFactory()
    client = client_with(permission, "view_work", "view_deadletter")
    if permission == "delete_work":
        client.post(address(page), {"action": "retry_selected", "_selected_action": [work.id]})
        assert Work.objects.get().status == "dead"
    assert ("delete_chains_selected" in client.get(address(page)).content.decode()) is allowed
    assert confirm(client, [work.id], page).status_code == (403 if permission == "view_group" else ANY)
    assert (work.id not in left()) is allowed


def test_the_permission_is_asked_for_each_work(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    may, may_not = WorkFactory(), WorkFactory()
    refuse(monkeypatch, "delete_chains", may_not.id)
    response = press(operator, [may.id, may_not.id])
    assert response.context["model_count"] == [("chains", 1), ("works", 1)]
    done, refusal = messages_of(confirm(operator, [may.id, may_not.id]))
    assert refusal == (
        f"expected a permission to delete the chain of the work {may_not.id} ({may_not.type}), "
        "and you have none for it."
    )
    assert done == "1 work was deleted with its chain."
    assert left() == {may_not.id}


@pytest.fixture
def ids() -> dict[Any, str]:
    dead = DeadLetterFactory()
    return {
        Work: dead.id,
        DeadLetter: dead.id,
        Group: GroupFactory().id,
        WorkerProcess: WorkerProcessFactory().id,
    }


@pytest.mark.parametrize("model", MODELS)
def test_not_even_a_superuser_adds_changes_or_deletes(
    operator: Client, ids: dict[Any, str], model: Any
) -> None:
    name, id = model._meta.model_name, ids[model]
    before = model.objects.filter(pk=id).values().get()
    assert operator.get(address(f"{name}_add")).status_code == 403
    assert operator.post(address(f"{name}_add"), {"id": "new"}).status_code == 403
    assert operator.post(address(f"{name}_change", id), {"type": "other", "pid": 1}).status_code == 403
    assert operator.post(address(f"{name}_delete", id), {"post": "yes"}).status_code == 403
    assert "delete_selected" not in operator.get(address(f"{name}_changelist")).content.decode()
    assert model.objects.filter(pk=id).values().get() == before


@pytest.mark.parametrize("model", MODELS)
def test_viewing_needs_a_permission(
    client_with: Any, viewer: Client, ids: dict[Any, str], model: Any
) -> None:
    name, nobody = model._meta.model_name, client_with()
    for page in (address(f"{name}_changelist"), address(f"{name}_change", ids[model])):
        assert viewer.get(page).status_code == 200
        assert nobody.get(page).status_code == 403


@pytest.mark.parametrize("model", [Work, DeadLetter, Group])
def test_rows_are_read_where_the_queue_is(settings: Any, rf: RequestFactory, model: Any) -> None:
    settings.AYEWORK = {"DATABASE": "elsewhere"}
    assert admin.site.get_model_admin(model).get_queryset(rf.get("/")).db == "elsewhere"
