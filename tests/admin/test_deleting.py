"""Deleting chains, and what nobody may do with the rows of the queue."""

from unittest.mock import ANY

import pytest
from django.contrib import admin
from django.contrib.admin.models import DELETION, LogEntry

from django_ayework import Context, enqueue, work
from django_ayework.admin import action_execution
from django_ayework.models import DeadLetter, Group, StoreEntry, Work, WorkerProcess
from django_ayework.testing import drain
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.admin.kit import address, assert_shows, hide, logged, refuse, told
from tests.admin.test_acting import LISTS, answer, press, select
from tests.app.works import add
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


@work(name="admin.count")
def count(ctx: Context, n: int, until: int):
    return ctx.result(n) if n == until else ctx.continue_with(count(n=n + 1, until=until))


def ask(client, ids, page="work_changelist", **more):
    return select(client, "delete_chains", ids, page, **more)


def confirm(client, ids, page="work_changelist"):
    return ask(client, ids, page, post="yes")


def chain_of_three():
    """Run a chain; return the ids of its works."""
    handle = enqueue(count(n=0, until=2))
    drain()
    return [step.id for step in handle.chain_state().steps]


def in_part(id, count):
    """Return the refusal of a chain with so many works that the user may not delete."""
    return (
        f"expected you to be allowed to see and delete all works of the chain of {id} (admin.count), and you "
        f"are not allowed to for {count} of them; ask somebody who is."
    )


def left():
    return set(Work.objects.values_list("id", flat=True))


def test_a_page_asks_first_and_names_the_works(operator, django_assert_max_num_queries):
    steps, other = chain_of_three(), enqueue(add(a=1, b=1), delay=60)
    before = left()
    response = ask(operator, [steps[1], other.id])
    assert response.status_code == 200
    assert response.context["model_count"] == [("chains", 2), ("works", 4)]
    question = "Are you sure you want to delete the chains of the selected works?"
    assert_shows(response.content.decode(), question, *(address("work_change", id) for id in before))
    assert "Are you sure" in press(operator, "delete_chains", other.id).content.decode()
    assert left() == before
    gone = answer(operator, "delete_chains", other.id)
    assert (gone.status_code, gone["Location"]) == (302, address("work_changelist")), (
        "it has no page any more"
    )
    assert left() == before - {other.id}
    ids = [work.id for work in DeadLetterFactory.create_batch(30)]
    with django_assert_max_num_queries(14):  # four of them for the choices of filters
        ask(operator, ids)


def test_the_chain_of_a_later_work_is_the_whole_one(operator):
    steps = chain_of_three()
    assert told(confirm(operator, steps[1:])) == ["2 works were deleted with their chains."]
    assert left() == set()
    entries = LogEntry.objects.filter(action_flag=DELETION, user__username="operator")
    assert {entry.object_id for entry in entries} == set(steps[1:])
    assert "Deleted with its chain. It was success." in logged()


@each_database
def test_a_chain_that_blocks_a_work_is_refused_in_words_and_the_others_go(operator):
    blocker, other = enqueue(add(a=1, b=1)), enqueue(add(a=1, b=1))
    waiting = enqueue(add(a=2, b=2), blockers=[blocker])
    done, refusal = told(confirm(operator, [blocker.id, other.id]))
    assert done == "1 work was deleted with its chain."
    assert f"{blocker.id} blocks the work {waiting.id}; it was not deleted" in refusal
    assert left() == {blocker.id, waiting.id}
    assert [entry.object_id for entry in LogEntry.objects.all()] == [other.id]
    confirm(operator, [blocker.id, waiting.id])
    assert left() == set()


def test_a_chain_that_was_not_deleted_is_shown_with_the_refusal(operator):
    blocker = enqueue(add(a=1, b=1))
    enqueue(add(a=2, b=2), blockers=[blocker])
    response = answer(operator, "delete_chains", blocker.id)
    assert (response.status_code, response["Location"]) == (302, address("work_change", blocker.id))


@each_database
@pytest.mark.parametrize("page", LISTS)
def test_confirmed_chains_are_deleted_and_missing_ones_are_passed_over(operator, page):
    *works, gone = DeadLetterFactory.create_batch(3)
    kept, ids = WorkFactory(), [work.id for work in (*works, gone)]
    ask(operator, ids, page)
    gone.delete()
    response = confirm(operator, ids, page)
    assert response.status_code == 302
    unlisted = "1 of the selected works is no longer in this list; nothing was done with it."
    assert told(response) == [unlisted, "2 works were deleted with their chains."]
    assert left() == {kept.id}


def test_a_chain_with_a_work_that_is_hidden_or_that_the_user_may_not_delete_is_refused(operator, monkeypatch):
    first, *others = chain_of_three()
    alone = enqueue(add(a=1, b=1))
    with monkeypatch.context() as patch:
        hide(patch, pk__in=others)
        done, refusal = told(confirm(operator, [first, alone.id]))
    assert (done, refusal) == ("1 work was deleted with its chain.", in_part(first, 2))
    refuse(monkeypatch, "delete_chains", others[1])
    assert told(answer(operator, "delete_chains", others[0]))[-1] == in_part(others[0], 1)
    assert left() == {first, *others}


def test_the_permission_is_asked_for_each_work(operator, monkeypatch):
    may, may_not = WorkFactory(), WorkFactory()
    refuse(monkeypatch, "delete_chains", may_not.id)
    response = ask(operator, [may.id, may_not.id])
    assert response.context["model_count"] == [("chains", 1), ("works", 1)]
    done, refusal = told(confirm(operator, [may.id, may_not.id]))
    assert refusal == (
        f"expected a permission to delete the chain of the work {may_not.id} ({may_not.type}), "
        "and you have none for it."
    )
    assert done == "1 work was deleted with its chain."
    assert left() == {may_not.id}


def test_a_bounded_number_goes_at_once_and_the_page_says_so(operator, monkeypatch):
    monkeypatch.setattr(action_execution, "AT_ONCE", 3)
    monkeypatch.setattr(action_execution, "SHOWN", 2)
    works = DeadLetterFactory.create_batch(5)
    response = ask(operator, [works[0].id], select_across="1")
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
def test_the_permission_to_delete_is_the_permission_to_delete_chains(client_with, permission, page, allowed):
    work = DeadLetterFactory()
    client = client_with(permission, "view_work", "view_deadletter")
    if permission == "delete_work":
        select(client, "retry", [work.id], page)
        assert Work.objects.get().status == "dead"
    assert ("delete_chains_selected" in client.get(address(page)).content.decode()) is allowed
    assert confirm(client, [work.id], page).status_code == (403 if permission == "view_group" else ANY)
    assert (work.id not in left()) is allowed


@pytest.fixture(params=[Work, DeadLetter, Group, WorkerProcess, StoreEntry])
def row(request):
    """A row of each model; dead works stand for works, too."""
    from django_ayework.testing import factories

    model = request.param
    return model.objects.get(pk=getattr(factories, f"{model.__name__}Factory")(**ROW.get(model, {})).pk)


ROW = {Work: {"status": "dead"}, StoreEntry: {"value": "old"}}


def test_not_even_a_superuser_adds_or_changes_and_only_entries_are_deleted(operator, row):
    name, model = row._meta.model_name, type(row)
    before = model.objects.filter(pk=row.pk).values().get()
    assert operator.get(address(f"{name}_add")).status_code == 403
    assert operator.post(address(f"{name}_add"), {"id": "new"}).status_code == 403
    changed = {"type": "other", "pid": 1, "value": "new"}
    assert operator.post(address(f"{name}_change", row.pk), changed).status_code == 403
    if model is not StoreEntry:
        assert operator.post(address(f"{name}_delete", row.pk), {"post": "yes"}).status_code == 403
        assert "delete_selected" not in operator.get(address(f"{name}_changelist")).content.decode()
    assert model.objects.filter(pk=row.pk).values().get() == before


def test_viewing_needs_a_permission(client_with, row):
    name = row._meta.model_name
    viewer, nobody = client_with(f"view_{name}"), client_with()
    for page in (address(f"{name}_changelist"), address(f"{name}_change", row.pk)):
        assert viewer.get(page).status_code == 200
        assert nobody.get(page).status_code == 403


@pytest.mark.parametrize("model", [Work, DeadLetter, Group])
def test_rows_are_read_where_the_queue_is(settings, rf, model):
    settings.AYEWORK = {"DATABASE": "elsewhere"}
    assert admin.site.get_model_admin(model).get_queryset(rf.get("/")).db == "elsewhere"
