"""Deduplication by key: what counts as there, and what becomes of the second one."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, Dedup, cancel, dependency, enqueue, enqueue_many, retry, trigger, work
from django_ayework.errors import InvalidOption, InvalidWorkId
from django_ayework.flow.maintenance import prune_others
from django_ayework.models import Group, StoreEntry, Work
from django_ayework.rules.states import LIVE, Status
from django_ayework.store.database import clock
from django_ayework.testing import drain, running_worker, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.app.models import Order
from tests.app.works import add, fail
from tests.marks import on_sqlite
from tests.processes import eventually

pytestmark = pytest.mark.django_db

KEY = Dedup("k")


@work(name="t.dedup.keyed", options=lambda n, **_: {"dedup": Dedup(f"n{n}") if n else None})
def keyed(ctx: Context, n: int):
    return ctx.result(n)


@work(name="t.dedup.choosy", options=lambda past: {"dedup": Dedup("k", exclude=past)})
def choosy(past: list[str]) -> None: ...


def put(dedup: Dedup | None = KEY, **options: Any) -> Any:
    return enqueue(add(a=1, b=2), dedup=dedup, **options)


def stored(status: str = "pending", age: float = 0, key: str = "k") -> str:
    """Store a work of the key; return its id."""
    queued_at = clock.now() - timedelta(seconds=age)
    return str(WorkFactory(status=status, dedup_key=key, queued_at=queued_at).id)


@pytest.mark.parametrize("scope", ["incomplete", "any"])
@pytest.mark.parametrize("window", [None, timedelta(minutes=1), 1e13], ids=["ever", "passed", "beyond time"])
def test_what_counts_as_there(scope, window):
    for status, excluded in product(Status, (False, True)):
        key = f"{status} {excluded}"
        there = stored(status, age=3600, key=key)
        handle = put(Dedup(key, scope, window, [there] if excluded else ()))
        counts = (scope == "any" or status in LIVE) and window != timedelta(minutes=1) and not excluded
        assert (handle.deduplicated, handle.id == there) == (counts, counts), key
        assert Work.objects.filter(dedup_key=key).count() == (1 if counts else 2), key


def test_a_handle_is_of_the_work_that_is_there_and_stays_as_it_was(
    queued, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        [first, *_] = enqueue_many([add(a=1, b=2), fail()], together=True, dedup=KEY, priority=1)
        before = [*Work.objects.order_by("id").values()]
        second = enqueue(add(a=8, b=9), dedup=KEY, priority=5, queue="mail", delay=60)
    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert (second.id, second.group_id) == (first.id, first.group_id)
    assert enqueue(fail(), dedup=KEY).group_id == first.group_id
    assert [*Work.objects.order_by("id").values()] == before
    assert queued == [row["id"] for row in before], "nothing is sent for the second one"


def test_keys_differ_by_every_letter_and_by_type():
    keys = ["k", "K", "k2", "ḱ", "k k"]
    WorkFactory(dedup_key=None)
    works = [*((add(a=1, b=2), key) for key in keys), (fail(), "k")]
    assert not any(enqueue(work, dedup=Dedup(key)).deduplicated for work, key in works)
    stored = Work.objects.exclude(dedup_key=None).values_list("dedup_key", flat=True)
    assert sorted(stored) == sorted([*keys, "k"])
    assert not put(None).deduplicated
    assert enqueue(fail(), dedup=KEY).deduplicated


@pytest.mark.parametrize("ages", [(10, 20, 30), (30, 20, 10), (20, 10, 30)])
def test_the_newest_match_wins_and_one_that_has_ended_hides_none(ages):
    by_age = {age: stored(age=age) for age in ages}
    assert put().id == by_age[10]
    assert put(Dedup("k", exclude=by_age[10])).id == by_age[20]
    newest = stored("success", age=5)
    assert (put().id, put(Dedup("k", "any")).id) == (by_age[10], newest)


def test_a_work_that_waits_past_its_deadline_is_no_match_and_one_that_runs_is():
    first = put(expires=60)
    assert put().deduplicated
    time_travel(3600)
    second = put(expires=60)
    assert (second.deduplicated, second.id == first.id) == (False, False)
    Work.objects.filter(id=second.id).update(status="running")
    time_travel(3600)
    assert put().id == second.id


def test_an_id_of_ones_own_is_used_only_when_nothing_is_there():
    request = add(a=1, b=2)
    assert enqueue(request, dedup=KEY).id == put(id="two").id == request.id
    again = enqueue(request, dedup=Dedup("k", exclude=[request.id]))
    assert (again.id, again.deduplicated) == (request.id, True), "a request twice is one work"
    assert put(Dedup("k", exclude=[again]), id="two").id == "two"
    assert put(id="two").deduplicated
    with pytest.raises(InvalidWorkId):
        put(Dedup("other"), id="two")


def test_what_is_rolled_back_was_never_there_and_a_match_leaves_the_transaction_alone():
    with transaction.atomic():
        put()
        transaction.set_rollback(True)
    assert not put().deduplicated
    with transaction.atomic():
        Order.objects.create(reference="kept")
        assert put().deduplicated
    assert Work.objects.count() == Order.objects.count() == 1


def test_the_key_is_locked_before_it_is_looked_for_and_locks_are_pruned_a_day_later():
    put()
    with CaptureQueriesContext(connection) as captured:
        put(Dedup("other"))
    said = [query["sql"].split()[0] for query in captured if "SAVEPOINT" not in query["sql"]]
    assert said == ["INSERT", "SELECT", "INSERT"]
    prune_others()
    assert StoreEntry.objects.count() == 2
    time_travel(timedelta(days=1, seconds=1))
    prune_others()
    assert StoreEntry.objects.count() == 0
    assert put().deduplicated


#: Calls that are refused, and what is said.
REFUSED = {
    "text": (lambda: put("k"), r"expected dedup to be a Dedup\(...\), got: 'k'"),
    "on_commit": (lambda: put(on_commit=True), "does not go with on_commit=True"),
    "computed, on_commit": (
        lambda: enqueue_many([keyed(n=1)], on_commit=True), "does not go with on_commit=True"
    ),
    "gate": (lambda: enqueue(dependency(["one"], []), dedup=KEY), "a gate takes no dedup="),
    "gate among many": (
        lambda: enqueue_many([add(a=1, b=2), dependency(["x"], [])], dedup=KEY), "a gate takes no dedup="
    ),
    "released": (
        lambda: dependency(["one"], [keyed(n=1)]),
        r"dependency\(queue=\), given <WorkRequest t.dedup.keyed .*>, takes no dedup=",
    ),
    "watched": (lambda: dependency([keyed(n=1)], []), r"dependency\(on=\), given .* takes no dedup="),
}  # fmt: skip


@on_sqlite
@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_where_a_key_is_refused(call, message):
    with pytest.raises((TypeError, InvalidOption), match=message):
        call()
    assert Work.objects.count() == 0


#: Handlers that queue works with keys into their group.
IN_GROUPS: dict[str, Any] = {
    "queue option": lambda ctx: ctx.queue([add(a=1, b=2)], dedup=KEY),
    "queued type": lambda ctx: ctx.queue([[keyed(n=1)]]),
    "next option": lambda ctx: ctx.queue([add(a=1, b=2)]).next(add(a=1, b=2), dedup=KEY),
    "next type": lambda ctx: ctx.queue([add(a=1, b=2)]).next(keyed(n=1)),
}


@on_sqlite
@pytest.mark.parametrize("handler", IN_GROUPS.values(), ids=IN_GROUPS)
def test_works_of_a_group_cannot_be_works_that_are_there(outcome, handler):
    state = outcome(work(name="t.dedup.parent")(handler)())
    assert (state.status, Work.objects.count()) == ("dead", 1)
    assert "takes no dedup=" in state.error
    assert "Queue it by itself with enqueue(..., dedup=...)" in state.error


def test_a_gate_watches_a_match_by_its_handle():
    enqueue(keyed(n=1))
    gate = enqueue(dependency([enqueue(keyed(n=1))], [add(a=1, b=2)]))
    drain()
    assert gate.group(timeout=0) == 3


def found(handles: list[Any]) -> list[bool]:
    return [handle.deduplicated for handle in handles]


def test_an_option_of_the_batch_makes_it_one_work_that_was_there_before_or_is_new_after_the_window():
    dedup = Dedup("k", "any", window=60)
    handles = enqueue_many([add(a=n, b=0) for n in range(3)], dedup=dedup)
    [row] = Work.objects.all()
    assert (row.input, {handle.id for handle in handles}) == ('{"a":0,"b":0}', {row.id})
    assert found(handles) == [False, True, True]
    handles = enqueue_many([add(a=n, b=0) for n in range(2)], dedup=dedup)
    assert [(handle.id, handle.deduplicated) for handle in handles] == [(row.id, True)] * 2
    time_travel(61)
    first, second = enqueue_many([add(a=1, b=0), add(a=2, b=0)], dedup=dedup)
    assert first.id != row.id
    assert (first.deduplicated, second.id, second.deduplicated) == (False, first.id, True)


def test_within_the_batch_too_what_is_excluded_is_passed_over_and_the_newest_wins():
    first, second, third = (add(a=n, b=0) for n in range(3))
    handles = enqueue_many([first, second, third], dedup=Dedup("k", exclude=[first.id]))
    assert [handle.id for handle in handles] == [first.id, second.id, second.id]
    assert found(handles) == [False, False, True]
    first = choosy(past=[])
    second = choosy(past=[first.id])
    handles = enqueue_many([first, second, choosy(past=[]), choosy(past=[second.id])])
    assert [handle.id for handle in handles] == [first.id, second.id, second.id, first.id]


def test_a_type_computes_the_key_from_the_input_or_none_and_a_key_given_wins():
    known, twice = keyed(n=4), keyed(n=3)
    enqueue(known)
    drain()
    numbered = [keyed(n=n) for n in (1, 2, 1, 0, 0)]
    handles = enqueue_many([*numbered, add(a=1, b=2), twice, twice, known, keyed(n=4)])
    assert found(handles) == [False, False, True, False, False, False, False, True, True, False]
    assert handles[2].id == handles[0].id
    assert enqueue(keyed(n=2)).id == handles[1].id
    assert keyed.enqueue(n=1).deduplicated
    keys = Work.objects.exclude(dedup_key=None).values_list("dedup_key", flat=True)
    assert sorted(keys) == ["n1", "n2", "n3", "n4", "n4"], "one that has ended is not new to the others"
    assert not enqueue(keyed(n=1), dedup=KEY).deduplicated
    assert enqueue(keyed(n=2), dedup=KEY).deduplicated


def test_a_group_is_made_of_the_works_that_are_new_and_is_none_if_all_were_there():
    there = enqueue(keyed(n=1))
    assert found(enqueue_many([keyed(n=1), keyed(n=1)], together=True)) == [True, True]
    assert (Work.objects.count(), Group.objects.count()) == (1, 0)
    handles = enqueue_many([keyed(n=1), keyed(n=2), keyed(n=3), keyed(n=2)], together=True)
    assert found(handles) == [True, False, False, True]
    assert handles[0].group_id == there.id
    assert {handle.group_id for handle in handles[1:]} == {handles[1].id}
    assert Group.objects.get().total == 2
    drain()
    assert handles[1].group(timeout=0) in (2, 3)


def test_many_keys_take_few_statements():
    enqueue_many([keyed(n=n) for n in range(1, 301)])
    with CaptureQueriesContext(connection) as captured:
        handles = enqueue_many([keyed(n=n) for n in range(1, 601)])
    assert found(handles) == [True] * 300 + [False] * 300
    assert Work.objects.count() == 600
    assert len(captured) < 20


# --- a work that queues its own next run under a key ----------------------------------------------------


failing = {"now": False}


@work(name="t.dedup.series", atomic=True)
def series(ctx: Context) -> None:
    enqueue(series(), dedup=Dedup("series", exclude=[ctx.id]), delay=3600)
    if failing["now"]:
        raise RuntimeError("not now")


def start() -> None:
    """Begin the series, unless it is going."""
    enqueue(series(), dedup=Dedup("series"))


def runs(*statuses: str) -> list[Work]:
    return list(Work.objects.filter(status__in=statuses).order_by("queued_at", "id"))


@pytest.fixture
def stands_still(monkeypatch: pytest.MonkeyPatch) -> Work:
    """A run of the series has died, and its cause is mended."""
    monkeypatch.setitem(failing, "now", True)
    start()
    for _ in range(3):
        drain(raises=False)
        time_travel(60)
    monkeypatch.setitem(failing, "now", False)
    [dead] = runs("dead")
    assert runs(*LIVE) == [], "a run that fails queues no other"
    return dead


@pytest.mark.parametrize(
    "repair",
    [
        *("retry", "start, run, retry"),
        *(pytest.param(acts, marks=on_sqlite) for acts in ("start", "retry, start", "start, retry")),
        pytest.param("start, start, run, start", marks=on_sqlite),
    ],
)
def test_a_series_that_stands_still_goes_on_as_one(stands_still, repair):
    acts = {"retry": lambda: retry(stands_still.id), "start": start, "run": drain}
    for name in repair.split(", "):
        acts[name]()
    drain()
    assert len(runs(*LIVE)) == 1
    before = len(runs("success"))
    time_travel(3600)
    assert drain().succeeded == 1
    assert (len(runs("success")), len(runs(*LIVE))) == (before + 1, 1)


@pytest.mark.django_db(transaction=True)
def test_runs_that_meet_in_a_real_worker_go_on_as_one_series(stands_still):
    """A dead run is retried at the moment at which the run of a new series is due: both queue the next."""
    for number in range(1, 4):
        [dead] = runs("dead") or runs("cancelled")
        start()
        if retry(dead.id).state().status == "scheduled":
            trigger(dead.id)
        with running_worker(concurrency=2):
            eventually(lambda: not runs("pending", "running"))
        assert len(runs("success")) == 2 * number
        [following] = runs(*LIVE)
        cancel(following.id)
