"""Acts on works, dead letters and groups: what they do, what they ask, and who may do what."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client

from django_ayework import Retry, dependency, enqueue, enqueue_many, get_handle
from django_ayework.admin import action_execution
from django_ayework.admin.actions import ACTS
from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.testing import drain
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.admin.kit import address, assert_hides, assert_shows, die, hide, ids_on, logged, refuse, told
from tests.app.works import add, fail
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
LISTS = ["work_changelist", "deadletter_list"]
RETRY = {"work_changelist": "work_retry", "deadletter_list": "deadletter_retry"}
#: What an act is told, besides the works.
PARAMETERS = {
    "complete": {"with-result": "7"},
    "change_priority": {"with-priority": "9"},
    "change_queue": {"with-queue": "mail"},
}
#: The acts that each permission allows, besides that to look.
ALLOWED = {
    "retry_work": {"retry", "run_again"},
    "change_work": {"run_now", "complete", "change_priority", "change_queue"},
    "cancel_work": {"cancel"},
    "delete_work": {"delete_chains"},
    "edit_input_work bulk_work": set(),
}


def select(client, action, ids, page="work_changelist", **more):
    return client.post(address(page), {"action": f"{action}_selected", "_selected_action": ids, **more})


def press(client, act, id, **data):
    return client.post(address(f"work_{act}", id), data)


def answer(client, act, id, **data):
    """Press the button, and answer what it asks."""
    return press(client, act, id, post="yes", **PARAMETERS.get(act, {}) | data)


def statuses(*works):
    return [Work.objects.get(id=work.id).status for work in works]


def group():
    """A group: two of its works are dead, two have not ended."""
    requests = [fail(), fail(), add(a=1, b=1), add(a=1, b=2)]
    handles = enqueue_many(requests, together=True, retry=Retry(attempts=1))
    drain(limit=2, raises=False)
    return handles[0].id, handles


# Retrying and cancelling


@pytest.mark.parametrize(
    ("act", "page", "factory", "was", "after", "done"),
    [
        ("retry", "work_changelist", DeadLetterFactory, "dead", "pending", "2 works were retried."),
        ("retry", "deadletter_list", DeadLetterFactory, "dead", "pending", "2 works were retried."),
        ("cancel", "work_changelist", WorkFactory, "pending", "cancelled", "2 works were cancelled."),
    ],
)
def test_the_action_acts_on_the_selected_works_and_logs_it(operator, act, page, factory, was, after, done):
    *chosen, other = factory.create_batch(3)
    assert told(select(operator, act, [work.id for work in chosen], page)) == [done]
    assert statuses(*chosen, other) == [after, after, was]
    operator.post(address(f"work_{act}", "missing"))
    entries = {(entry.object_id, entry.user.username) for entry in LogEntry.objects.all()}
    assert entries == {(work.id, "operator") for work in chosen}
    text = f"{'Retried' if act == 'retry' else 'Cancelled'}. It was {was}."
    assert text in operator.get(address("work_history", chosen[0].id)).content.decode()
    if act == "retry":
        assert ids_on(operator.get(address("deadletter_list"))) == [other.id]
        assert drain().ran == 2


@each_database
def test_refusals_are_listed_in_short_and_undo_nothing(operator):
    dead, waiting = DeadLetterFactory(), WorkFactory.create_batch(action_execution.SHOWN_EACH + 5)
    messages = told(select(operator, "retry", [*(work.id for work in waiting), dead.id]))
    assert statuses(dead) == ["pending"]
    assert messages[0] == "1 work was retried."
    assert re.match(r"expected the work [\w-]+ to be dead or cancelled, but it is pending", messages[1])
    assert len(messages) == action_execution.SHOWN_EACH + 2
    assert messages[-1] == "5 more were refused."
    ended = WorkFactory(status="success")
    messages = told(select(operator, "cancel", [ended.id, dead.id]))
    assert messages[-2:] == ["1 work was cancelled.", "1 work had ended or was gone already."]


@each_database
def test_a_gate_is_retried_together_with_the_work_that_it_died_of(operator):
    watched = fail()
    gate = enqueue(dependency(on=[watched], queue=[add(a=1, b=1)]))
    enqueue(watched)
    die()  # runs the other one to death, too
    [refusal] = told(select(operator, "retry", [gate.id], "deadletter_list"))
    assert watched.id in refusal
    assert statuses(gate) == ["dead"]
    response = select(operator, "retry", [gate.id, watched.id], "deadletter_list")
    assert statuses(watched, gate) == ["pending", "blocked"]
    assert told(response) == [refusal, "1 work was retried.", "1 work waits again for others."]


@pytest.mark.parametrize(
    ("act", "factory", "after"),
    [("retry", DeadLetterFactory, "pending"), ("cancel", WorkFactory, "cancelled")],
)
def test_one_action_takes_a_bounded_number_of_what_the_filters_show(
    operator, monkeypatch, act, factory, after
):
    monkeypatch.setattr(action_execution, "AT_ONCE", 3)
    kept, works = factory(type="shop.fail"), factory.create_batch(5)
    page = address("work_changelist", type="shop.add", status=works[0].status)
    data = {"action": f"{act}_selected", "_selected_action": [works[0].id], "select_across": "1"}
    assert "first 3 of the selection" in told(operator.post(page, data))[0]
    assert Work.objects.filter(status=after).count() == 3
    left = Work.objects.filter(type="shop.add", status=works[0].status).values_list("id", flat=True)
    operator.post(page, data | {"_selected_action": list(left)})
    assert Work.objects.filter(status=after).count() == 5
    assert statuses(kept) == [kept.status]


def test_ids_of_all_kinds_can_be_acted_on_and_a_second_press_is_refused(operator):
    work = DeadLetterFactory(id="eu/order_2F17")
    for message in ("1 work was retried.", "but it is pending"):
        response = operator.post(address("work_retry", quote(work.id)), follow=True)
        assert response.redirect_chain == [(address("work_change", quote(work.id)), 302)]
        assert_shows(response.content.decode(), message, work.id)
        assert statuses(work) == ["pending"]


def test_a_page_has_the_buttons_of_its_status(page):
    def buttons(status):
        work = WorkFactory(status=status)
        shown = page("work_change", work.id)
        return [act for act in ("cancel", "retry") if address(f"work_{act}", work.id) in shown]

    assert {status.value: buttons(status) for status in Status} == {
        "pending": ["cancel"],
        "scheduled": ["cancel"],
        "running": ["cancel"],
        "blocked": ["cancel"],
        "success": [],
        "dead": ["retry"],
        "cancelled": ["retry"],
    }


@each_database
def test_the_works_of_a_group_are_cancelled_and_retried(operator, page):
    id, handles = group()
    for act, message, after in (
        ("cancel", "2 works were cancelled.", ["dead", "dead", "cancelled", "cancelled"]),
        ("retry", "4 works were retried.", ["pending"] * 4),
    ):
        assert address(f"group_{act}", id) in page("group_change", id)
        response = operator.post(address(f"group_{act}", id), follow=True)
        assert response.redirect_chain == [(address("group_change", id), 302)]
        assert message in response.content.decode()
        assert address(f"group_{act}", id) not in response.content.decode()
        assert statuses(*handles) == after
    assert {entry.object_id for entry in LogEntry.objects.all()} == {handle.id for handle in handles}


# Who may


@pytest.mark.parametrize("page", LISTS)
def test_works_that_are_hidden_or_refused_one_by_one_are_left_alone(operator, monkeypatch, page):
    mine, hidden, refused = DeadLetterFactory.create_batch(3)
    hide(monkeypatch, id=hidden.id)
    refuse(monkeypatch, "retry", refused.id)
    assert operator.post(address(RETRY[page], hidden.id)).status_code == 404
    assert operator.post(address(RETRY[page], refused.id)).status_code == 403
    refusal = f"expected a permission to retry the work {refused.id} (shop.add), and you have none for it."
    response = select(operator, "retry", [mine.id, hidden.id, refused.id], page)
    unlisted = "1 of the selected works is no longer in this list; nothing was done with it."
    assert told(response) == ["1 work was retried.", refusal, unlisted]
    response = select(operator, "retry", [hidden.id, refused.id], page, select_across="1")
    assert told(response)[-1] == refusal
    assert statuses(mine, hidden, refused) == ["pending", "dead", "dead"]
    assert {entry.object_id for entry in LogEntry.objects.all()} == {mine.id}


@pytest.mark.parametrize(("act", "first"), [("retry", 0), ("cancel", 2)])
def test_works_of_a_group_that_are_hidden_or_refused_are_left_alone(operator, monkeypatch, act, first):
    id, handles = group()
    hidden, refused = handles[first : first + 2]
    before, type = statuses(*handles), Work.objects.get(id=refused.id).type
    hide(monkeypatch, id=hidden.id)
    refuse(monkeypatch, act, refused.id)
    assert press(operator, act, hidden.id).status_code == 404
    assert press(operator, act, refused.id).status_code == 403
    assert told(operator.post(address(f"group_{act}", id)))[-1] == (
        f"expected a permission to {act} the work {refused.id} ({type}), and you have none for it."
    )
    assert statuses(*handles) == before


def test_other_methods_other_sites_and_other_works_change_nothing(operator):
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    id, handles = group()
    living = [WorkFactory(status=status) for status in ("cancelled", "success", "pending")]
    before = statuses(*handles, *living)
    assert select(strict, "retry", [id], "deadletter_list").status_code == 403
    for page in ("group_cancel", "group_retry"):
        assert operator.get(address(page, id)).status_code == 405
        assert operator.post(address(page, "missing")).status_code == 404
    for work in living:
        assert operator.post(address("deadletter_retry", work.id)).status_code == 404
    assert statuses(*handles, *living) == before


def test_a_viewer_acts_on_no_dead_letters(viewer, page):
    work = DeadLetterFactory()
    shown = viewer.get(address("deadletter_list")).content.decode()
    assert work.id in shown
    assert_hides(shown, "retry_selected", "cancel_selected")
    assert select(viewer, "retry", [work.id], "deadletter_list").status_code == 403
    assert statuses(work) == ["dead"]
    assert "retry_selected" in page("deadletter_list")
    assert "cancel_selected" not in page("deadletter_list")


@pytest.mark.parametrize(
    ("button", "permissions", "allowed"),
    [
        ("work_retry", ["change_work"], True),  # it allows looking
        ("work_retry", ["view_deadletter"], False),
        ("deadletter_retry", ["view_deadletter"], True),
        ("deadletter_retry", ["view_work"], False),
        ("group_retry", ["view_group", "view_work"], True),
        ("group_retry", ["view_work"], False),
        ("group_retry", ["change_group", "change_work"], True),
        ("group_cancel", ["view_group", "view_work"], True),
    ],
)
def test_a_button_takes_its_permission_and_one_to_look(client_with, button, permissions, allowed):
    id, handles = group()
    model, act = button.split("_")
    before, viewer = statuses(*handles), client_with(*permissions)
    if allowed:
        assert f"/{act}/" not in viewer.get(address(f"{model}_change", id)).content.decode()
    assert viewer.post(address(button, id)).status_code == 403
    assert statuses(*handles) == before
    response = client_with(*permissions, f"{act}_work").post(address(button, id))
    assert response.status_code == (302 if allowed else 403)
    assert (statuses(*handles) != before) is allowed
    if permissions == ["view_deadletter"] and allowed:
        assert response.headers["Location"] == address("deadletter_changelist")


# Other acts


def target(act):
    """Make a work that the act is for; return its id."""
    if act in ("retry", "run_again"):
        return str(WorkFactory(status="dead" if act == "retry" else "success").id)
    return enqueue(add(a=1, b=2), delay=60).id


def everything():
    return list(Work.objects.order_by("id").values())


@pytest.mark.parametrize("permission", ALLOWED)
def test_each_act_takes_a_permission_of_its_own(client_with, permission):
    assert set().union(*ALLOWED.values()) == set(ACTS)
    client, targets = client_with("view_work", *permission.split()), {act: target(act) for act in ACTS}
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
    assert len(logged()) == len(ALLOWED[permission])


def test_no_act_is_open_to_those_who_may_not_look(client_with):
    client, targets = (
        client_with(*set(" ".join(ALLOWED).split()) - {"change_work"}),
        {act: target(act) for act in ACTS},
    )
    before = everything()
    assert {answer(client, act, id).status_code for act, id in targets.items()} == {403}
    assert everything() == before


@each_database
def test_a_success_runs_again_as_a_new_work(operator):
    old = enqueue(add(a=1, b=2))
    drain()
    done, shown = told(press(operator, "run_again", old.id))
    assert done == "1 work was queued again, as a new one."
    assert address("work_change", Work.objects.get(parent_id=old.id).id) in shown
    assert logged() == ["Run again, as a new work. It was success."]
    refusal = told(press(operator, "run_again", DeadLetterFactory().id))[-1]
    assert "it is dead; retry it" in refusal


@each_database
def test_a_scheduled_work_runs_now_and_another_moves_to_another_queue(operator):
    work, due = enqueue(add(a=1, b=2), delay=3600), enqueue(add(a=1, b=2))
    done, refusal = told(select(operator, "run_now", [work.id, due.id]))
    assert statuses(work, due) == ["pending", "pending"]
    assert done == "1 work is due now."
    assert "but it is pending" in refusal
    assert told(answer(operator, "change_queue", due.id))[-1] == "1 work was moved."
    assert Work.objects.get(id=due.id).queue == "mail"
    made_due, moved = logged()
    assert made_due.startswith("Made due now. It was scheduled for ")
    assert moved == "Moved from the queue default to mail."
    drain()
    assert work.result() == 3


@pytest.mark.parametrize("queue", ["mail,slow", "-mail", "a\u2028b"])
def test_a_name_that_no_queue_can_have_is_refused_in_the_form(operator, queue):
    work = enqueue(add(a=1, b=2))
    asked = answer(operator, "change_queue", work.id, **{"with-queue": queue})
    assert "expected queue to be a text without commas" in asked.context["form"].errors["queue"][0]
    assert Work.objects.get(id=work.id).queue == "default"


@each_database
@pytest.mark.parametrize("page", ["work_changelist", "storeentry_changelist", "schedule_changelist"])
@pytest.mark.parametrize("id", ["a\0b", "seven", "9" * 30])
def test_ticked_ids_that_no_row_can_have_are_left_out(operator, page, id):
    act = {"work_changelist": "cancel", "storeentry_changelist": "delete"}.get(page, "pause")
    assert select(operator, act, [id], page).status_code == 302


@each_database
def test_a_work_is_completed_with_a_result_in_json(operator):
    work = enqueue(add(a=1, b=2), delay=3600)
    after = enqueue(dependency(on=[work], queue=[add(a=5, b=5)]))
    asked = press(operator, "complete", work.id)
    assert asked.status_code == 200
    assert "without their handlers" in asked.content.decode()
    assert "null" not in asked.content.decode()
    wrong = answer(operator, "complete", work.id, **{"with-result": "{seven"})
    assert "expected JSON, got: {seven" in wrong.content.decode()
    assert statuses(work) == ["scheduled"]
    response = answer(operator, "complete", work.id, **{"with-result": '{"total": 7}'})
    assert told(response) == ["1 work was completed."]
    assert get_handle(work.id).result() == {"total": 7}
    assert statuses(after) == ["success"]
    assert logged() == ["Completed by hand. It was scheduled."]
    assert "ended already" in told(answer(operator, "complete", work.id))[-1]


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5000], ids=["too deep", "too long"])
def test_a_result_that_python_cannot_read_is_refused_in_the_form(operator, text):
    work = enqueue(add(a=1, b=2))
    asked = answer(operator, "complete", work.id, **{"with-result": text})
    assert asked.context["form"].errors["result"][0].startswith("expected JSON")
    assert statuses(work) == ["pending"]


@each_database
def test_the_priority_of_ticked_works_is_changed(operator):
    def change(**data):
        return select(operator, "change_priority", ids, **data)

    works = [WorkFactory(priority=1), WorkFactory(priority=2), WorkFactory(status="success")]
    ids = [work.id for work in works]
    asked = change().content.decode()
    assert asked.count('name="_selected_action"') == 3
    assert "with-priority" in asked
    assert "Enter a whole number" in change(post="yes", **{"with-priority": "high"}).content.decode()
    done, refusal = told(change(post="yes", **{"with-priority": "-3"}))
    assert done == "2 works have another priority."
    assert "but it is success; it was not changed." in refusal
    assert sorted(logged()) == ["Changed the priority from 1 to -3.", "Changed the priority from 2 to -3."]
    assert [Work.objects.get(id=id).priority for id in ids[:2]] == [-3, -3]


def test_a_gate_that_has_opened_cannot_be_run_again_and_is_called_a_gate(page):
    gate = enqueue(dependency(on=[], queue=[add(a=3, b=4)]))
    drain()
    assert statuses(gate) == ["success"]
    shown = page("work_change", gate.id)
    assert address("work_run_again", gate.id) not in shown
    assert_shows(shown, address("work_delete_chains", gate.id), '<h2 class="ayework-headline">gate ')
    assert ">gate<" in page("work_changelist")
