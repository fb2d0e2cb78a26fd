"""``ayework_explain``, ``ayework_prune``, ``ayework_scheduler`` and ``ayework_typing``.

``make types`` checks tests/typing/enqueueing_by_name.py against the module that the last one writes.
"""

import ast
from datetime import timedelta

import pytest
from django.core.management.base import CommandError
from django.db import connection

import django_ayework
from django_ayework import enqueue, registry, schedule, work
from django_ayework.documentation import entry_url
from django_ayework.flow.scheduler import SCHEDULES
from django_ayework.flow.schedules import sync
from django_ayework.models import Schedule, StoreEntry, Work
from django_ayework.ports.kv import DatabaseStore
from django_ayework.store import deletion
from django_ayework.testing import now, running_worker, time_travel
from django_ayework.testing import tick as fire_in_test
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.app.works import add
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


@each_database
def test_explain_prints_the_status_and_each_reason(call):
    WorkerProcessFactory(running=8)
    WorkFactory(priority=1)
    handle = enqueue(add(a=1, b=2))
    assert call("ayework_explain", handle.id).splitlines() == [
        f"{handle.id} is pending.",
        "  All slots of the worker that serves its queue 'default' were busy at the last heartbeat (8/8).",
        f"  See {entry_url('works', 'workers_busy')}",
        "  1 work is ahead of it in its queue 'default': of higher priority, or due for longer.",
        f"  See {entry_url('works', 'behind_others')}",
    ]


def test_explain_answers_in_json(call_json):
    handle = enqueue(add(a=1, b=2), delay=60)
    answer = call_json("ayework_explain", handle.id)
    [reason] = answer.pop("reasons")
    assert answer == {"id": handle.id, "status": "scheduled"}
    assert reason["code"] == "not_due"
    assert reason["text"].startswith("It is due at ")
    assert set(reason["facts"]) == {"run_at", "seconds"}
    with pytest.raises(CommandError, match="no work has the id 'nowhere'"):
        call_json("ayework_explain", "nowhere")


@each_database
@pytest.mark.parametrize("batch", [(), ("--batch", "3")])
def test_prune_deletes_everything_due_in_batches_and_says_how_much(call, call_json, monkeypatch, batch):
    batches, delete = [], deletion.delete_unneeded
    monkeypatch.setattr(
        deletion, "delete_unneeded", lambda *args: batches.append(delete(*args)) or batches[-1]
    )
    WorkFactory.create_batch(7, status="success", ended_at=now() - timedelta(days=2))
    WorkFactory(status="success")
    for refused in ("0", "-1"):
        with pytest.raises(CommandError, match=f"expected --batch to be 1 or more, got: {refused}"):
            call("ayework_prune", "--batch", refused)
    assert call("ayework_prune", *batch) == "Deleted 7 works.\n"
    assert batches == ([3, 3, 1] if batch else [7])
    assert Work.objects.count() == 1
    assert call_json("ayework_prune") == {"deleted": 0}


def test_prune_deletes_every_expired_store_entry(call):
    store = DatabaseStore()
    for number in range(5):
        store.set(f"old {number}", "", ttl=1)
    store.set("new", "", ttl=3600)
    time_travel(2)
    assert call("ayework_prune", "--batch", "2") == "Deleted 0 works.\n"
    assert StoreEntry.objects.count() == 1


@pytest.fixture
def many_due():
    number = SCHEDULES + 1 if connection.vendor == "sqlite" else 3
    declared = [schedule(name=f"tick{each}", every=60, run=add(a=1, b=2)) for each in range(number)]
    yield len(declared)
    for each in declared:
        each.cancel()


@each_database
def test_the_scheduler_syncs_and_fires_all_schedules_that_are_due(call, call_json, many_due):
    assert call("ayework_scheduler", "--once") == "Fired 0 schedules.\n"
    assert Schedule.objects.count() == many_due
    time_travel(60)
    assert call("ayework_scheduler", "--once") == f"Fired {many_due} schedules.\n"
    assert Work.objects.count() == many_due
    assert call_json("ayework_scheduler", "--once") == {"fired": 0}
    time_travel(60)
    assert fire_in_test() == many_due


@pytest.mark.django_db(transaction=True)
def test_a_burst_fires_all_schedules_that_are_due(many_due):
    sync()
    time_travel(60)
    with running_worker(burst=True):
        eventually(lambda: Work.objects.filter(status="success").count() == many_due)


@pytest.fixture
def typed():
    """A type of work that is known during the test."""

    @work(name="shop.typed-for-now")
    def typed(uuid: int, note: str = "") -> str:
        return note

    yield typed
    registry.unregister("shop.typed-for-now")


def test_the_written_module_enqueues_and_is_printed_without_a_file(call, tmp_path, typed):
    path = tmp_path / "by_name.py"
    call("ayework_typing", "--output", str(path))
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert names["enqueue"] is django_ayework.enqueue
    assert names["aenqueue"] is django_ayework.aenqueue
    assert names["ShopTypedForNowInput"].__total__
    printed = call("ayework_typing")
    ast.parse(printed)
    for part in (f'Literal["{add.name}"]', '"uuid": "int"', '"note": NotRequired["str"]'):
        assert part in printed
    assert "@work/" not in printed, "gates are left out"
    assert "takes_context" not in printed, "and the tasks of Django"


def test_check_fails_when_a_handler_has_changed_and_needs_a_file(call, tmp_path, typed):
    path = tmp_path / "by_name.py"
    with pytest.raises(CommandError, match=r"expected --output FILE with --check, got --check alone"):
        call("ayework_typing", "--check")
    with pytest.raises(CommandError, match=r"is not up to date. Write it again: manage.py ayework_typing"):
        call("ayework_typing", "--check", "--output", str(path))
    call("ayework_typing", "--output", str(path))
    call("ayework_typing", "--check", "--output", str(path))
    registry.unregister(typed.name)
    with pytest.raises(CommandError, match=r"by_name.py is not up to date"):
        call("ayework_typing", "--check", "--output", str(path))


@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["written", "checked"])
def test_a_file_that_cannot_be_used_is_named(call, tmp_path, typed, arguments):
    with pytest.raises(CommandError, match=rf"^{tmp_path} cannot be used: Is a directory\."):
        call("ayework_typing", "--output", str(tmp_path), *arguments)
