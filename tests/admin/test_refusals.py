"""A database that refuses what an operator does: the page stays, and a message says why."""

from contextlib import contextmanager

import pytest
from django.contrib.admin.models import LogEntry
from django.db import OperationalError, connection

from django_ayework import enqueue, pause
from django_ayework.flow.bulk_actions import start_bulk_action
from django_ayework.flow.retry import state_token
from django_ayework.models import BulkAction, Schedule, StoreEntry, Work, WorkControl, WorkerProcess
from django_ayework.testing.factories import (
    DeadLetterFactory,
    StoreEntryFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.admin.kit import address, logged, told
from tests.admin.test_schedules import FORM, add_schedule
from tests.app.works import add
from tests.marks import each_database, on_servers, on_sqlite, own_session

pytestmark = pytest.mark.django_db(transaction=True)

#: Makes the session read-only, and writable again.
READ_ONLY = {
    "postgresql": ("SET default_transaction_read_only = on", "SET default_transaction_read_only = off"),
    "mysql": ("SET SESSION TRANSACTION READ ONLY", "SET SESSION TRANSACTION READ WRITE"),
    "sqlite": ("PRAGMA query_only = 1", "PRAGMA query_only = 0"),
}
UNCHANGED = (Work, Schedule, WorkControl, WorkerProcess, BulkAction, StoreEntry, LogEntry)


@contextmanager
def read_only():
    make, restore = READ_ONLY[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(make)
        try:
            yield
        finally:
            cursor.execute(restore)


@contextmanager
def refusing(text, *words):
    """Refuse the writing statements with these words among their text and parameters."""

    def refuse(run, sql, params, many, context):
        shown = f"{sql} {params}"
        if not sql.startswith("SELECT") and all(word in shown for word in words):
            raise OperationalError(text)
        return run(sql, params, many, context)

    with connection.execute_wrapper(refuse):
        yield


def rows_now():
    return [list(model.objects.order_by("pk").values()) for model in UNCHANGED]


def requests():
    """Every kind of request that writes: its address, and what is posted."""
    dead, pending = DeadLetterFactory(type="shop.add", input='{"a": 1, "b": 2}'), WorkFactory()
    schedule, worker, entry = Schedule.objects.get(), WorkerProcessFactory(), StoreEntryFactory()
    bulk = start_bulk_action("retry", {"status": "dead"}, per_minute=1)
    pause(queue="mail")
    control = WorkControl.objects.get()
    edited = {"input-a": "5", "input-b": "6", "token": state_token(dead), "confirm": "1"}
    queue = {"scope": "queue", "name": "mail", "act": "resume"}
    ticked = {"action": "cancel_selected", "_selected_action": [pending.id]}
    paused = {"action": "pause_selected", "_selected_action": [schedule.pk]}
    yield address("work_retry", dead.id), {}
    yield address("work_delete_chains", dead.id), {"post": "yes"}
    yield address("work_changelist", status="pending"), ticked
    yield address("work_edit", dead.id), edited
    yield address("schedule_add"), FORM | {"name": "other"}
    yield address("schedule_change", str(schedule.pk)), FORM | {"every": "90"}
    yield address("schedule_delete", str(schedule.pk)), {"post": "yes"}
    yield address("schedule_pause", str(schedule.pk)), {}
    yield address("schedule_run", str(schedule.pk)), {}
    yield address("schedule_changelist"), paused
    yield address("workerprocess_quiet", worker.pk), {}
    yield address("workcontrol_changelist"), queue
    yield address("workcontrol_change", str(control.pk)), {}
    yield address("overview_control", **queue), {}
    yield address("bulkaction_new", action="cancel", status="pending"), {"per_minute": ""}
    yield address("bulkaction_stop", bulk.pk), {}
    yield address("storeentry_delete", entry.pk), {"post": "yes"}


def sees_the_page(client, response):
    """Tell whether the answer is a page, or leads to one."""
    there = response if response.status_code == 200 else client.get(response["Location"])
    return there.status_code == 200


def assert_refused(client, url, data):
    response = client.post(url, data)
    assert sees_the_page(client, response), url
    said = " ".join(told(response)).lower()
    assert "database has refused it" in said or "could not be run" in said, url
    assert any(word in said for word in ("read-only", "read only", "readonly")), url
    return response


@own_session
@each_database
def test_a_read_only_database_changes_nothing_and_the_page_says_so(operator):
    assert_all_refused(operator)


@own_session
@on_servers  # SQLite refuses the transaction of each request
def test_so_it_does_where_a_request_is_one_transaction(operator, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    assert_all_refused(operator)


def assert_all_refused(operator):
    add_schedule(operator)
    posts = list(requests())
    before = rows_now()
    with read_only():
        for url, data in posts:
            assert_refused(operator, url, data)
    assert rows_now() == before


@own_session
@each_database
def test_a_refused_form_keeps_what_was_entered(operator):
    dead = DeadLetterFactory(type="shop.add", input='{"a": 1, "b": 2}')
    edited = {"input-a": "5", "input-b": "67", "token": state_token(dead), "confirm": "1"}
    with read_only():
        form = assert_refused(operator, address("schedule_add"), FORM | {"name": "entered"})
        edit = assert_refused(operator, address("work_edit", dead.id), edited)
    assert 'value="entered"' in form.content.decode()
    assert 'value="67"' in edit.content.decode()


@on_sqlite
def test_works_before_a_refusal_are_logged_and_those_behind_it_are_named(operator):
    works = [DeadLetterFactory() for _ in range(3)]
    ticked = {"action": "retry_selected", "_selected_action": [work.id for work in works]}
    second = works[1].id  # the list has the newest first
    with refusing("the disk is full", second):
        said = told(operator.post(address("work_changelist"), ticked))
    done, first, last = said
    assert done == "1 work was retried."
    assert [second in first, works[0].id in last] == [True, True]
    assert "has refused a statement: the disk is full." in first
    assert logged() == ["Retried. It was dead."]
    found = dict(Work.objects.values_list("id", "status"))
    assert [found[work.id] for work in works] == ["dead", "dead", "pending"]


@on_sqlite
def test_an_act_that_cannot_be_logged_is_shown_as_done(operator):
    work = DeadLetterFactory()
    with refusing("no room", "django_admin_log"):
        said = told(operator.post(address("work_retry", work.id)))
    assert said == [
        "The database has refused to write this into the log of the admin: no room.",
        "1 work was retried.",
    ]


@on_sqlite
def test_a_command_that_cannot_be_logged_is_not_carried_out(operator):
    first, second = (WorkerProcessFactory() for _ in range(2))
    quiet = {"action": "quiet_selected", "_selected_action": [first.pk, second.pk]}
    with refusing("no room", "django_admin_log", first.pk):
        said = told(operator.post(address("workerprocess_changelist"), quiet))
    refusal = f"{first} was not changed, as the database has refused it: no room."
    assert said == [refusal, "1 worker was told."]
    commands = dict(WorkerProcess.objects.values_list("id", "command"))
    assert (commands[first.pk], commands[second.pk]) == ("", "quiet")
    assert len(logged()) == 1


@on_sqlite
def test_an_error_of_a_page_that_only_reads_is_raised(operator):
    enqueue(add(a=1, b=2))

    def refuse(run, sql, params, many, context):
        if "ayework_work" in sql:
            raise OperationalError("away")
        return run(sql, params, many, context)

    with connection.execute_wrapper(refuse), pytest.raises(OperationalError, match="away"):
        operator.get(address("work_changelist"))


@each_database
def test_entries_whose_deletion_is_refused_are_not_logged_as_deleted(operator):
    entry = StoreEntryFactory()
    deleted = {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"}
    with refusing("no room", "DELETE", StoreEntry._meta.db_table):
        said = told(operator.post(address("storeentry_changelist"), deleted))
    assert said == ["Nothing was changed, as the database has refused it: no room."]
    assert (StoreEntry.objects.count(), logged()) == (1, [])
