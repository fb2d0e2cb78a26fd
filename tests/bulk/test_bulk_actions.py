"""An act on all works that match: stored, carried out page by page, stopped, resumed, reported."""

import json
import threading
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection, transaction

from django_ayework import (
    astart_bulk_action,
    cancel,
    dependency,
    enqueue,
    enqueue_many,
    pause,
    retry,
    start_bulk_action,
    work,
)
from django_ayework.flow import acts, bulk_actions
from django_ayework.flow.acts import Act, ActReport
from django_ayework.flow.bulk_actions import resume, step, stop
from django_ayework.flow.maintenance import prune_others
from django_ayework.models import BulkAction, Work, WorkerProcess
from django_ayework.rules.states import Status
from django_ayework.store import selection
from django_ayework.testing import drain, now, run_bulk_actions, running_worker, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail, notify
from tests.bulk.kit import ONCE, dead_works, now_of, retry_all
from tests.marks import each_database, on_sqlite
from tests.processes import PATIENCE, eventually
from tests.races.holding import at_once, in_thread, somebody_waits, transaction_elsewhere

pytestmark = pytest.mark.django_db


@pytest.fixture
def act(monkeypatch):
    """Let a function be an act; return its name."""

    def act(function) -> str:
        monkeypatch.setitem(acts.ACTS, "own", Act(function, frozenset(Status)))
        return "own"

    return act


def have_status(status: str, ids: list[str] | None = None) -> bool:
    """Tell whether all works, or those with these ids, have this status."""
    works = Work.objects.all() if ids is None else Work.objects.filter(id__in=ids)
    return set(works.values_list("status", flat=True)) == {status}


def carried_out(row: BulkAction) -> BulkAction:
    """Carry out all bulk actions; return this one as it is then."""
    run_bulk_actions()
    return now_of(row)


@pytest.mark.parametrize("until", [None, datetime(2999, 1, 1, tzinfo=UTC)])
def test_all_works_that_match_are_retried_and_no_others(until):
    dead, alive = dead_works(30), enqueue(add(a=1, b=2), delay=3600)
    row = retry_all(until=until)
    assert (row.expected, row.status, have_status("dead", dead)) == (30, "running", True)
    late = dead_works(2)
    assert run_bulk_actions() == 2
    row = now_of(row)
    assert (row.status, row.done, row.refused, row.next_at, bool(row.ended_at)) == ("done", 30, 0, None, True)
    assert (have_status("pending", dead), alive.state().status) == (True, "scheduled")
    assert have_status("dead", late), "of those that die later none is retried"
    drain(raises=False)  # they die again
    assert step() is False
    assert have_status("dead", [*dead, *late])


def test_filters_are_those_of_the_list_and_ids(act):
    group = [handle.id for handle in enqueue_many([fail(), fail()], together=True, retry=ONCE)]
    drain(raises=False)
    chosen = {"plain": {}, "mail": {"queue": "mail"}, "ann": {"fairness": "ann"}, "urgent": {"priority": 7}}
    names = {dead_works(1, "no stock", **options)[0]: name for name, options in chosen.items()}
    names |= {group[0]: "first", group[1]: "second", enqueue(add(a=1, b=2)).id: "cancelled"}
    ids = {name: id for id, name in names.items()}
    cancel(ids["cancelled"])
    died = Work.objects.get(id=ids["plain"])
    today, yesterday = ((now() - timedelta(days=days)).date().isoformat() for days in (0, 1))
    acted = []

    def note(ids, parameters):
        acted.extend(ids)
        return ActReport(done=list(ids))

    every, stock = set(names.values()), set(chosen)
    for filter, expected in (
        ({"type": "shop.fail"}, every - {"cancelled"}),
        ({"type": "shop.add"}, {"cancelled"}),
        ({"queue": "mail"}, {"mail"}),
        ({"reason": "exhausted"}, every - {"cancelled"}),
        ({"reason": "aborted"}, set()),
        ({"status": "cancelled"}, {"cancelled"}),
        ({"status": "dead", "queue": "default"}, every - {"cancelled", "mail"}),
        ({"fairness": "ann"}, {"ann"}),
        ({"priority": "7"}, {"urgent"}),
        ({"status": "dead", "type": died.type, "reason": died.reason, "cause": died.cause}, stock),
        ({"ids": [ids["plain"], ids["first"]]}, {"plain", "first"}),
        ({"day": today}, every),
        ({"day": yesterday}, set()),
        ({"group_id": Work.objects.get(id=group[0]).group_id}, {"first", "second"}),
    ):
        acted.clear()
        row = carried_out(start_bulk_action(act(note), filter))
        found = {names[id] for id in acted}
        assert (found, row.expected, row.done) == (expected, len(expected), len(expected)), filter


def test_a_filter_by_worker_finds_the_works_that_it_runs_or_has_ended():
    dead = dead_works(4)[:3]
    running = WorkFactory(status="running", worker="one")
    Work.objects.filter(id__in=dead).update(completed_by="one")
    row = retry_all(filter={"status": "dead", "worker": "one"})
    assert (row.expected, carried_out(row).done, have_status("pending", dead)) == (3, 3, True)
    assert carried_out(start_bulk_action("cancel", {"worker": "one"})).done == 1
    assert have_status("cancelled", [running.id])


@on_sqlite
@pytest.mark.parametrize(
    ("action", "filter", "options"),
    [
        ("explode", {"status": "dead"}, {}),
        ("cancel", {}, {}),
        ("cancel", {"type": "shop.ad"}, {}),
        ("change_queue", {"status": "pending"}, {}),
        *(("change_queue", {"status": "pending"}, {"parameters": {"queue": queue}}) for queue in ("a,b", 7)),
        ("change_queue", {"status": "pending"}, {"parameters": {"queue": "a", "que": "b"}}),
        ("change_priority", {"status": "pending"}, {"parameters": {"priority": "high"}}),
        ("cancel", {"status": "pending"}, {"parameters": {"result": 1}}),
        *(("retry", {"day": day}, {}) for day in ("someday", "9999-12-31", "0001-01-01")),
        *(("retry", {name: "red"}, {}) for name in ("colour", "status", "priority")),
        *(("retry", {"status": "dead"}, {"per_minute": pace}) for pace in (0, 2**31, 1.5, "600")),
        ("retry", {"ids": [str(n) for n in range(501)]}, {}),
        *(("retry", {"ids": ids}, {}) for ids in ("one", None, [17.5])),
        *(("retry", {name: ["a", "b"]}, {}) for name in ("type", "queue", "status")),
        *(("retry", {name: "a\0b"}, {}) for name in ("type", "queue", "group_id")),
        ("retry", {"status": None}, {}),
        ("retry", {"status": "dead"}, {"until": datetime(2026, 1, 1)}),
    ],
)
def test_what_cannot_be_is_refused_at_once(action, filter, options):
    with pytest.raises(ValueError, match="expected"):
        start_bulk_action(action, filter, **options)
    assert not BulkAction.objects.exists()


@on_sqlite
def test_a_refusal_suggests_the_nearest_name():
    for action, filter, name in (
        ("cancle", {"status": "dead"}, "cancel"),
        ("cancel", {"stats": "dead"}, "status"),
        ("cancel", {"status": "ded"}, "dead"),
        ("cancel", {"type": "shop.ad"}, "shop.add"),
    ):
        with pytest.raises(ValueError, match=f"Did you mean '?{name}'?"):
            start_bulk_action(action, filter)


def test_works_of_a_type_that_is_not_known_any_more_can_be_acted_on():
    handle = enqueue(add(a=1, b=2))
    Work.objects.update(type="shop.gone")
    assert carried_out(start_bulk_action("cancel", {"type": "shop.gone"})).done == 1
    assert handle.state().status == "cancelled"


@pytest.mark.parametrize("act", ["cancel", "delete"])
@pytest.mark.parametrize("condition", ["all-done", "all-success"])
def test_gates_are_acted_on_before_works_whose_end_would_decide_them(monkeypatch, act, condition):
    monkeypatch.setattr(bulk_actions, "PAGE", 2)
    members = enqueue_many([add(a=1, b=number) for number in range(5)], together=True, queue="mail")
    gate = enqueue(dependency(members, [notify(order_id=1)], condition=condition), queue="mail")
    drain(limit=0)  # runs what waits for the commit
    row = carried_out(start_bulk_action(act, {"queue": "mail"}))
    assert (row.done, row.refused, row.expected) == (6, 0, 6)
    assert not Work.objects.exclude(status="cancelled").exists()
    assert gate.state() is None if act == "delete" else gate.state().status == "cancelled"


@each_database
@pytest.mark.parametrize("act", ["cancel", "delete"])
@pytest.mark.parametrize("filter", [{"queue": "mail"}, {"queue": "mail", "status": "blocked"}])
def test_gates_are_acted_on_before_gates_whose_end_would_decide_them(monkeypatch, act, filter):
    monkeypatch.setattr(bulk_actions, "PAGE", 2)
    later = enqueue_many([add(a=1, b=number) for number in range(3)], delay=60)
    inner = [enqueue(dependency([each], [notify(order_id=1)]), queue="mail") for each in later]
    for gate in inner:
        enqueue(dependency([gate], [notify(order_id=2)], condition="all-done"), queue="mail")
    drain(limit=0)  # runs what waits for the commit
    row = carried_out(start_bulk_action(act, filter))
    assert (row.done, row.refused) == (6, 0)
    assert not Work.objects.filter(type=notify.name).exists()


def test_other_acts_have_parameters():
    handle = enqueue(add(a=1, b=2))
    async_to_sync(astart_bulk_action)("change_priority", {"type": "shop.add"}, parameters={"priority": 5})
    run_bulk_actions()
    assert Work.objects.get(id=handle.id).priority == 5
    assert carried_out(start_bulk_action("cancel", {"type": "shop.add"})).done == 1
    assert handle.state().status == "cancelled"
    assert carried_out(start_bulk_action("delete", {"status": "cancelled"})).done == 1
    assert not Work.objects.exists()


@pytest.mark.parametrize("window", [3, 10_000])
def test_a_page_looks_at_a_bounded_number_of_works(window, monkeypatch):
    monkeypatch.setattr(selection, "WINDOW", window)
    enqueue_many([add(a=1, b=2) for _ in range(20)])
    mails = {handle.id for handle in enqueue_many([notify(order_id=n) for n in range(5)])}
    enqueue_many([add(a=1, b=2) for _ in range(10)])
    assert carried_out(start_bulk_action("cancel", {"queue": "mail"})).done == 5
    assert set(Work.objects.filter(status="cancelled").values_list("id", flat=True)) == mails


def test_to_create_one_takes_a_few_queries_and_counts_so_many(monkeypatch, django_assert_max_num_queries):
    dead_works(30)
    with django_assert_max_num_queries(8):
        retry_all()
    monkeypatch.setattr(selection, "COUNTED_AMONG", 3)
    assert start_bulk_action("cancel", {"queue": "mail"}).expected == bulk_actions.UNKNOWN


@on_sqlite
def test_refusals_are_counted_and_the_first_ones_kept():
    failing = enqueue(fail(), retry=ONCE)
    gates = [enqueue(dependency([failing], [add(a=1, b=2)])).id for _ in range(30)]
    drain(raises=False)
    row = start_bulk_action("retry", {"ids": gates})
    assert row.expected == 30
    row = carried_out(row)
    assert (row.status, row.done, row.refused) == ("done", 0, 30)
    kept = json.loads(row.report)
    assert len(kept) == bulk_actions.KEPT
    assert kept[0][0] in gates
    assert "still cannot open" in kept[0][1]


def test_a_page_that_breaks_ends_it_with_the_error_and_undoes_the_page(act):
    dead_works(30)
    calls = []

    def breaks(ids, parameters):
        calls.append(ids)
        if len(calls) == 2:
            Work.objects.filter(id__in=ids).update(priority=9)
            raise RuntimeError("<b>broken</b>")
        return ActReport(done=list(ids))

    row = carried_out(start_bulk_action(act(breaks), {"status": "dead"}))
    assert (row.status, row.done, row.next_at) == ("failed", 25, None)
    assert row.ended_at is not None  # or it would be kept for ever
    assert json.loads(row.report) == [["", "RuntimeError: <b>broken</b>"]]
    assert not Work.objects.filter(priority=9).exists()
    assert resume(row.id)
    row = carried_out(row)
    assert (row.status, row.done) == ("done", 30)
    assert sorted([*calls[0], *calls[2]]) == sorted(Work.objects.values_list("id", flat=True))


class Cancelled(Exception):
    sqlstate = "57014"


@pytest.mark.vendors("postgresql")
@pytest.mark.parametrize(("most", "outcome"), [(1, ("done", 3)), (0, ("failed", 0))])
def test_a_page_that_takes_too_long_is_tried_with_one_work(act, most, outcome):
    dead_works(3)

    def slow(ids, parameters):
        if len(ids) > most:
            raise OperationalError("canceling statement due to statement timeout") from Cancelled()
        return ActReport(done=list(ids))

    row = carried_out(start_bulk_action(act(slow), {"status": "dead"}))
    assert (row.status, row.done) == outcome
    error = ["", "OperationalError: canceling statement due to statement timeout"]
    assert json.loads(row.report) == ([error] if row.status == "failed" else [])


@pytest.mark.vendors("sqlite")
def test_a_database_that_is_locked_or_away_fails_none(act):
    dead_works(1)
    errors = [OperationalError("database is locked"), OperationalError("disk I/O error")]

    def refused(ids, parameters):
        if errors:
            raise errors[0]
        return ActReport(done=list(ids))

    row = start_bulk_action(act(refused), {"status": "dead"})
    assert not step(), "another process has the lock"
    del errors[0]
    with pytest.raises(OperationalError, match="disk I/O error"):
        step()
    errors.clear()
    assert now_of(row).status == "running"
    row = carried_out(row)
    assert (row.status, row.done, row.refused) == ("done", 1, 0)


@pytest.mark.vendors("postgresql", "mysql")
def test_a_work_that_others_hold_is_refused_and_keeps_back_no_other(transactional_db):
    held = sorted(dead_works(3))[1]
    waits = {"postgresql": "lock_timeout = '100ms'", "mysql": "innodb_lock_wait_timeout = 1"}
    with transaction_elsewhere(lambda: Work.objects.select_for_update().get(id=held)):
        with connection.cursor() as cursor:
            cursor.execute(f"SET SESSION {waits[connection.vendor]}")
        row = carried_out(retry_all())
    connection.close()  # with its setting
    assert (row.status, row.done, row.refused) == ("done", 2, 1)
    assert json.loads(row.report) == [[held, bulk_actions.HELD]]
    assert list(Work.objects.filter(status="dead").values_list("id", flat=True)) == [held]


@pytest.mark.vendors("postgresql")
@pytest.mark.django_db(transaction=True)
def test_a_work_that_dies_again_after_its_page_was_read_is_left_alone():
    first, second = sorted(dead_works(2))
    row, is_locked = retry_all(), threading.Event()

    def carry_out() -> None:
        assert is_locked.wait(PATIENCE)
        run_bulk_actions()

    def die_again() -> None:
        retry(second)
        drain(raises=False)

    with in_thread(carry_out), transaction.atomic():
        Work.objects.select_for_update().get(id=first)
        is_locked.set()
        eventually(somebody_waits)
        at_once(die_again)
    row = now_of(row)
    assert (row.status, row.done, row.refused) == ("done", 1, 0)
    assert {work.id: work.status for work in Work.objects.all()} == {first: "pending", second: "dead"}


@on_sqlite
def test_an_act_that_this_version_does_not_know_is_left_to_others():
    row = retry_all()
    BulkAction.objects.filter(id=row.id).update(action="from_the_future")
    assert step() is False
    assert now_of(row).status == "running"


@on_sqlite
def test_it_keeps_to_its_pace():
    dead_works(20)
    row, moment = retry_all(per_minute=100), now()
    done = []
    for _ in range(6):
        while step(moment):
            continue
        done.append(now_of(row).done)
        moment += timedelta(seconds=1.2)
    assert done == [2, 4, 6, 8, 10, 12]
    moment += timedelta(hours=1)  # nobody was there; it does not rush
    while step(moment):
        continue
    assert now_of(row).done <= 12 + 2 + 4


def test_a_stop_leaves_the_rest_and_a_resume_goes_on():
    dead_works(30)
    row = retry_all()
    assert step()
    assert stop(row.id)
    assert not stop(row.id)
    assert step() is False
    row = now_of(row)
    assert (row.status, row.done, row.next_at) == ("stopped", 25, None)
    assert row.ended_at is not None
    assert resume(row.id)
    assert not resume(row.id)
    assert now_of(row).ended_at is None
    run_bulk_actions()
    assert (now_of(row).status, now_of(row).done) == ("done", 30)


def test_ended_ones_are_deleted_after_a_month():
    rows = [retry_all() for _ in range(3)]
    run_bulk_actions()
    stop(rows[2].id)
    waits = retry_all()
    time_travel(timedelta(days=29).total_seconds())
    prune_others()
    assert BulkAction.objects.count() == 4
    time_travel(timedelta(days=2).total_seconds())
    prune_others()
    assert list(BulkAction.objects.values_list("id", flat=True)) == [waits.id]


@on_sqlite
@pytest.mark.django_db(transaction=True)
def test_a_running_worker_begins_at_once(settings):
    settings.AYEWORK = {"POLL_INTERVAL": 30}
    dead_works(30, queue="elsewhere")
    with running_worker(queues=["default"]):
        eventually(WorkerProcess.objects.exists)
        with transaction.atomic():
            row = retry_all()
        eventually(lambda: now_of(row).status == "done", 10)
    assert now_of(row).done == 30


@on_sqlite
@pytest.mark.django_db(transaction=True)
def test_a_paced_one_goes_on_without_further_messages(quick_polls):
    dead_works(6)
    Work.objects.update(queue="elsewhere")
    with running_worker(queues=["default"]):
        row = retry_all(per_minute=240)
        eventually(lambda: now_of(row).status == "done", 20)
    row = now_of(row)
    assert row.done == 6
    assert row.ended_at is not None
    assert (row.ended_at - row.created_at).total_seconds() >= 0.9


@on_sqlite
@pytest.mark.django_db(transaction=True)
def test_neither_busy_slots_nor_a_pause_of_everything_keep_it_from_being_carried_out(quick_polls):
    started, release = threading.Event(), threading.Event()

    @work(name="t.holds_the_slot")
    def holds_the_slot() -> None:
        started.set()
        release.wait(30)

    dead_works(30)
    handle = enqueue(holds_the_slot())
    with running_worker(concurrency=1):
        assert started.wait(30)
        pause(queue="default")
        row = retry_all()
        eventually(lambda: now_of(row).status == "done")
        assert handle.state().status == "running"
        release.set()
    assert Work.objects.filter(status="pending").count() == 30
