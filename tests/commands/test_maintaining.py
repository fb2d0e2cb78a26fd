"""``ayework_explain``, ``ayework_prune`` and ``ayework_scheduler``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_ayework import enqueue, schedule
from django_ayework.documentation import entry_url
from django_ayework.flow import maintenance
from django_ayework.flow.scheduler import SCHEDULES
from django_ayework.flow.schedules import sync
from django_ayework.management.commands import ayework_prune
from django_ayework.models import Schedule, StoreEntry, Work
from django_ayework.ports.kv.database import DatabaseStore
from django_ayework.testing import now, running_worker, time_travel
from django_ayework.testing import tick as fire_in_test
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.app.works import add
from tests.processes import eventually

pytestmark = pytest.mark.django_db


def test_explain_prints_the_status_and_each_reason(call: Any) -> None:
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


def test_explain_answers_in_json(call_json: Any) -> None:
    handle = enqueue(add(a=1, b=2), delay=60)
    answer = call_json("ayework_explain", handle.id)
    [reason] = answer.pop("reasons")
    assert answer == {"id": handle.id, "status": "scheduled"}
    assert reason["code"] == "not_due"
    assert reason["text"].startswith("It is due at ")
    assert set(reason["facts"]) == {"run_at", "seconds"}
    with pytest.raises(CommandError, match="no work has the id 'nowhere'"):
        call_json("ayework_explain", "nowhere")


@pytest.fixture()
def prunable() -> None:
    """Seven works that may go and one that may not."""
    for _ in range(7):
        WorkFactory(status="success", ended_at=now() - timedelta(days=2))
    WorkFactory(status="success")


@pytest.mark.usefixtures("prunable")
def test_prune_deletes_everything_due_and_says_how_much(call: Any) -> None:
    assert call("ayework_prune") == "Deleted 7 works.\n"
    assert Work.objects.count() == 1
    assert call("ayework_prune") == "Deleted 0 works.\n"


@pytest.mark.usefixtures("prunable")
def test_prune_works_in_batches(call_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def prune(limit: int) -> int:
        batches.append(maintenance.prune(limit))
        return batches[-1]

    monkeypatch.setattr(ayework_prune, "prune", prune)
    assert call_json("ayework_prune", "--batch", "3") == {"deleted": 7}
    assert batches == [3, 3, 1, 0]


def test_prune_deletes_every_expired_store_entry(call: Any) -> None:
    store = DatabaseStore()
    for number in range(5):
        store.set(f"old {number}", "", ttl=1)
    store.set("new", "", ttl=3600)
    time_travel(2)
    assert call("ayework_prune", "--batch", "2") == "Deleted 0 works.\n"
    assert StoreEntry.objects.count() == 1


@pytest.mark.usefixtures("prunable")
@pytest.mark.parametrize("batch", ["0", "-1"])
def test_a_batch_of_pruning_has_at_least_one_work(call: Any, batch: str) -> None:
    with pytest.raises(CommandError, match=f"expected --batch to be 1 or more, got: {batch}"):
        call("ayework_prune", "--batch", batch)
    assert Work.objects.count() == 8


@pytest.fixture()
def tick() -> Any:
    declared = schedule(name="tick", every=60, run=add(a=1, b=2))
    yield declared
    declared.cancel()


def test_the_scheduler_syncs_and_fires_what_is_due(call: Any, call_json: Any, tick: Any) -> None:
    assert call("ayework_scheduler", "--once") == "Fired 0 schedules.\n"
    assert Schedule.objects.get().name == "tick"
    time_travel(60)
    assert call_json("ayework_scheduler", "--once") == {"fired": 1}
    assert Work.objects.count() == 1


@pytest.fixture()
def many_due() -> Any:
    declared = [schedule(name=f"tick{each}", every=60, run=add(a=1, b=2)) for each in range(SCHEDULES + 1)]
    sync()
    time_travel(60)
    yield len(declared)
    for each in declared:
        each.cancel()


def test_the_scheduler_fires_all_schedules_that_are_due(call: Any, many_due: int) -> None:
    assert call("ayework_scheduler", "--once") == f"Fired {many_due} schedules.\n"
    assert Work.objects.count() == many_due


def test_a_tick_fires_all_schedules_that_are_due(many_due: int) -> None:
    assert fire_in_test() == many_due


@pytest.mark.django_db(transaction=True)
def test_a_burst_fires_all_schedules_that_are_due(many_due: int) -> None:
    with running_worker(burst=True):
        eventually(lambda: Work.objects.filter(status="success").count() == many_due)
