"""Acts on works besides retrying and cancelling: what they do, what they ask, and who may do what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_ayework import dependency, enqueue, get_handle
from django_ayework.admin.actions import ACTS
from django_ayework.models import Work
from django_ayework.testing import drain
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.admin.kit import address, assert_shows, messages_of
from tests.admin.test_acting import select, status
from tests.app.works import add

pytestmark = pytest.mark.django_db

#: What an act is told, besides the works.
PARAMETERS = {
    "complete": {"with-result": "7"},
    "change_priority": {"with-priority": "9"},
    "change_queue": {"with-queue": "mail"},
}
#: The acts that each permission allows, besides that to look.
ALLOWED: dict[str, set[str]] = {
    "retry_work": {"retry", "run_again"},
    "change_work": {"run_now", "complete", "change_priority", "change_queue"},
    "cancel_work": {"cancel"},
    "delete_work": {"delete_chains"},
    "edit_input_work": set(),
    "bulk_work": set(),
}


def target(act: str) -> str:
    """Make a work that the act is for; return its id."""
    if act in ("retry", "run_again"):
        return str(WorkFactory(status="dead" if act == "retry" else "success").id)
    return enqueue(add(a=1, b=2), delay=60).id


def press(client: Client, act: str, id: str, **data: str) -> Any:
    return client.post(address(f"work_{act}", id), data)


def answer(client: Client, act: str, id: str, **data: str) -> Any:
    """Press the button, and answer what it asks."""
    return press(client, act, id, post="yes", **{**PARAMETERS.get(act, {}), **data})


def entries() -> list[str]:
    return [entry.get_change_message() for entry in LogEntry.objects.all()]


def everything() -> list[dict[str, Any]]:
    return list(Work.objects.order_by("id").values())


@pytest.mark.parametrize("permission", ALLOWED)
def test_each_act_takes_a_permission_of_its_own(client_with: Callable[..., Client], permission: str) -> None:
    assert set().union(*ALLOWED.values()) == set(ACTS)
    client, targets = client_with("view_work", permission), {act: target(act) for act in ACTS}
    listed = client.get(address("work_changelist")).content.decode()
    assert {act for act in ACTS if f"{act}_selected" in listed} == ALLOWED[permission]
    for act, id in targets.items():
        before, is_allowed = everything(), act in ALLOWED[permission]
        page = client.get(address("work_change", id)).content.decode()
        assert (address(f"work_{act}", id) in page) is is_allowed
        if not is_allowed:
            assert select(client, act, [id], post="yes", **PARAMETERS.get(act, {})).status_code in (302, 403)
            assert everything() == before
        assert client.get(address(f"work_{act}", id)).status_code == 405
        assert answer(client, act, id).status_code == (302 if is_allowed else 403)
        assert (everything() != before) is is_allowed
    assert len(entries()) == len(ALLOWED[permission])


def test_no_act_is_open_to_those_who_may_not_look(client_with: Callable[..., Client]) -> None:
    client = client_with(*set(ALLOWED) - {"change_work"})  # it lets look
    targets = {act: target(act) for act in ACTS}
    before = everything()
    assert {answer(client, act, id).status_code for act, id in targets.items()} == {403}
    assert everything() == before


def test_a_success_runs_again_as_a_new_work(operator: Client) -> None:
    old = enqueue(add(a=1, b=2))
    drain()
    response = press(operator, "run_again", old.id)
    new = Work.objects.get(parent_id=old.id)
    done, shown = messages_of(response)
    assert done == "1 work was queued again, as a new one."
    assert address("work_change", new.id) in shown
    assert entries() == ["Run again, as a new work. It was success."]
    dead = DeadLetterFactory()
    assert "it is dead; retry it" in messages_of(press(operator, "run_again", dead.id))[-1]


def test_a_scheduled_work_runs_now(operator: Client) -> None:
    work, due = enqueue(add(a=1, b=2), delay=3600), enqueue(add(a=1, b=2))
    messages = messages_of(select(operator, "run_now", [work.id, due.id]))
    assert (status(work), status(due)) == ("pending", "pending")
    assert messages[0] == "1 work is due now."
    assert "but it is pending" in messages[1]
    assert entries()[0].startswith("Made due now. It was scheduled for ")
    drain()
    assert work.result() == 3


def test_a_work_is_completed_with_a_result_in_json(operator: Client) -> None:
    work = enqueue(add(a=1, b=2), delay=3600)
    after = enqueue(dependency(on=[work], queue=[add(a=5, b=5)]))
    asked = press(operator, "complete", work.id)
    assert asked.status_code == 200
    assert "without their handlers" in asked.content.decode()
    assert "null" not in asked.content.decode()
    wrong = answer(operator, "complete", work.id, **{"with-result": "{seven"})
    assert "expected JSON, got: {seven" in wrong.content.decode()
    assert status(work) == "scheduled"
    response = answer(operator, "complete", work.id, **{"with-result": '{"total": 7}'})
    assert messages_of(response) == ["1 work was completed."]
    assert get_handle(work.id).result() == {"total": 7}
    assert status(after) == "success"
    assert entries() == ["Completed by hand. It was scheduled."]
    assert "ended already" in messages_of(answer(operator, "complete", work.id))[-1]


def test_the_priority_of_ticked_works_is_changed(operator: Client) -> None:
    works = [enqueue(add(a=1, b=n), priority=n) for n in (1, 2)]
    ended = WorkFactory(status="success")
    ids = [ended.id, *(work.id for work in works)]
    asked = select(operator, "change_priority", ids).content.decode()
    assert asked.count('name="_selected_action"') == 3
    assert "with-priority" in asked
    wrong = select(operator, "change_priority", ids, post="yes", **{"with-priority": "high"})
    assert "Enter a whole number" in wrong.content.decode()
    response = select(operator, "change_priority", ids, post="yes", **{"with-priority": "-3"})
    done, refusal = messages_of(response)
    assert done == "2 works have another priority."
    assert "but it is success; it was not changed." in refusal
    assert sorted(entries()) == ["Changed the priority from 1 to -3.", "Changed the priority from 2 to -3."]
    assert {Work.objects.get(id=work.id).priority for work in works} == {-3}


def test_a_work_moves_to_another_queue(operator: Client) -> None:
    work = enqueue(add(a=1, b=2))
    response = answer(operator, "change_queue", work.id)
    assert messages_of(response) == ["1 work was moved."]
    assert Work.objects.get(id=work.id).queue == "mail"
    assert entries() == ["Moved from the queue default to mail."]


def test_the_page_of_a_work_asks_before_its_chain_is_deleted(operator: Client) -> None:
    work = enqueue(add(a=1, b=2))
    assert "Are you sure" in press(operator, "delete_chains", work.id).content.decode()
    assert Work.objects.filter(id=work.id).exists()
    response = answer(operator, "delete_chains", work.id)
    assert response.status_code == 302
    assert not Work.objects.filter(id=work.id).exists()


def test_a_gate_that_has_opened_cannot_be_run_again_and_is_called_a_gate(operator: Client) -> None:
    member = add(a=1, b=2)
    enqueue(member)
    gate = enqueue(dependency(on=[member], queue=[add(a=3, b=4)]))
    drain()
    page = operator.get(address("work_change", gate.id)).content.decode()
    assert address("work_run_again", gate.id) not in page
    assert_shows(page, address("work_delete_chains", gate.id), '<h2 class="ayework-headline">gate ')
    assert ">gate<" in operator.get(address("work_changelist")).content.decode()
