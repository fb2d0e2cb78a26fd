"""Several operators at the same time: rows that others have changed or deleted since a page was opened."""

import pytest
from django.contrib.admin.models import LogEntry

from django_ayework import cancel, retry
from django_ayework.admin import action_execution, schedules
from django_ayework.admin import bulk_actions as bulk_admin
from django_ayework.flow import acts
from django_ayework.flow.bulk_actions import start_bulk_action
from django_ayework.flow.schedules import delete_by_hand, set_paused
from django_ayework.flow.termination import cancel_works, delete_chains
from django_ayework.models import BulkAction, Schedule, StoreEntry, Work
from django_ayework.testing.factories import (
    DeadLetterFactory,
    StoreEntryFactory,
    WorkFactory,
)
from tests.admin.kit import address, logged, told
from tests.admin.test_schedules import add_schedule
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


def select(client, page, action, ids, **data):
    return client.post(page, {"action": f"{action}_selected", "_selected_action": ids, **data})


def test_an_action_tells_how_many_of_the_ticked_works_have_left_the_list(operator):
    dead = [work.id for work in DeadLetterFactory.create_batch(3)]
    retry(dead[0])
    [done, unlisted] = told(select(operator, address("deadletter_list"), "retry", dead))
    assert unlisted.startswith("1 of the selected works is no longer in this list")
    assert done == "2 works were retried."
    [unlisted] = told(select(operator, address("deadletter_list"), "retry", dead))[2:]
    assert unlisted.startswith("3 of the selected works are no longer in this list")
    assert logged() == ["Retried. It was dead."] * 2


def test_an_action_that_asks_tells_it_before_and_after_the_answer(operator):
    page = address("work_changelist", status="pending")
    first, second, third = (work.id for work in WorkFactory.create_batch(3))
    cancel(first)
    asked = select(operator, page, "change_priority", [first, second, third])
    assert "1 of the selected works is no longer in this list" in asked.content.decode()
    Work.objects.filter(id=second).delete()
    answer = {"post": "yes", "with-priority": "5"}
    said = told(select(operator, page, "change_priority", [second, third], **answer))
    assert said[-2].startswith("1 of the selected works is no longer in this list")
    assert said[-1] == "1 work has another priority."


@pytest.mark.parametrize(
    ("button", "make"),
    [
        ("deadletter_retry", lambda: WorkFactory().id),
        ("work_cancel", lambda: "gone"),
        ("workerprocess_quiet", lambda: "gone"),
    ],
)
def test_the_button_of_a_row_that_has_left_the_list_shows_a_page_that_says_so(operator, button, make):
    id = make()
    response = operator.post(address(button, id))
    assert response.status_code == 404
    assert f"{id}: it is no longer in this list, so nothing was done." in response.content.decode()
    assert logged() == []


def test_works_that_another_deletes_before_they_can_be_cancelled_are_not_said_to_have_ended(
    operator, monkeypatch
):
    work = WorkFactory()

    def cancel_late(ids):
        delete_chains(ids)  # while this request waits for the locks
        return cancel_works(ids)

    monkeypatch.setattr(acts, "cancel_works", cancel_late)
    said = told(select(operator, address("work_changelist"), "cancel", [work.id]))
    assert said == ["1 work had ended or was gone already."]
    assert logged() == []


def pause_it(id):
    set_paused(id, True)


@pytest.mark.parametrize("leave", [pause_it, delete_by_hand])
def test_a_schedule_that_another_has_paused_or_deleted_is_not_logged_as_paused(operator, monkeypatch, leave):
    add_schedule(operator)
    LogEntry.objects.all().delete()
    schedule = Schedule.objects.get()

    def pause(id, paused):
        leave(id)  # while this request waits for the lock
        return set_paused(id, paused)

    monkeypatch.setattr(schedules, "set_paused", pause)
    [said] = told(operator.post(address("schedule_pause", str(schedule.pk))))[1:]
    assert said == f"{schedule}: there was nothing to do."
    assert logged() == []


def test_a_bulk_action_that_ended_before_it_could_be_stopped_is_shown_as_it_is(operator, monkeypatch):
    row = start_bulk_action("retry", {"status": "dead"}, per_minute=1)
    stop = bulk_admin.bulk_actions.stop

    def stop_late(id):
        BulkAction.objects.filter(id=id).update(status="done")  # by the page that holds the row
        return stop(id)

    monkeypatch.setattr(bulk_admin.bulk_actions, "stop", stop_late)
    assert told(operator.post(address("bulkaction_stop", row.id))) == ["It is done now."]
    assert logged() == []


@each_database
def test_entries_are_deleted_in_bounded_numbers_and_logged_once(operator, monkeypatch):
    monkeypatch.setattr(action_execution, "AT_ONCE", 3)
    keys = [StoreEntryFactory(key=f"key {number}").pk for number in range(5)]
    data = {"action": "delete_selected", "_selected_action": keys[:1]}
    asked = operator.post(address("storeentry_changelist"), {**data, "select_across": "1"})
    assert "These are the first 3 of the selection" in asked.content.decode()
    assert [entry.pk for entry in asked.context["queryset"]] == keys[:3]
    StoreEntry.objects.filter(key=keys[0]).delete()
    answer = {**data, "_selected_action": keys[:3], "post": "yes"}
    assert "2 " in told(operator.post(address("storeentry_changelist"), answer))[-1]
    assert sorted(StoreEntry.objects.values_list("key", flat=True)) == keys[3:]
    assert sorted(LogEntry.objects.values_list("object_id", flat=True)) == keys[1:3]


def test_ticked_entries_that_others_have_deleted_are_not_asked_about(operator):
    data = {"action": "delete_selected", "_selected_action": ["gone"]}
    for answer in ({}, {"post": "yes"}):
        said = told(operator.post(address("storeentry_changelist"), data | answer))
        assert said[-1].endswith("there was nothing to do.")
