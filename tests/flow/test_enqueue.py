"""Queueing one work: what is stored, what it costs, its options and its id, and requests queued again."""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils.timezone import make_aware, override

from django_ayework import Retry, aenqueue, batch_work, dependency, enqueue, enqueue_many, explain, work
from django_ayework.errors import InvalidWorkId
from django_ayework.models import Work
from django_ayework.rules.retry import RetryPolicy
from django_ayework.store import database
from django_ayework.store.database import clock
from django_ayework.testing import drain, enqueued, now, time_travel
from tests.app.models import Order
from tests.app.works import add, fail, notify
from tests.flow.kit import ONCE
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db


class Salted:
    """A codec that makes another text of the same value each time."""

    salts = itertools.count()

    def encode(self, value: Any) -> str:
        return json.dumps([next(self.salts), value])

    def decode(self, text: str) -> Any:
        return json.loads(text)[1]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("options", [{}, {"priority": 3, "queue": "mail"}], ids=["plain", "options"])
@pytest.mark.parametrize("block", [nullcontext, transaction.atomic], ids=["alone", "in a transaction"])
def test_queueing_costs_a_single_insert(block, options):
    with block(), CaptureQueriesContext(connection) as queries:
        handle = enqueue(add(a=1, b=2), **options)
    assert [query["sql"].split()[0] for query in queries] == ["INSERT"]
    assert Work.objects.get().id == handle.id


def test_a_new_work_is_pending_and_alone():
    order = Order.objects.create(reference="A1")
    state = enqueue(add(a=1, b=2), about=order).state()
    assert (state.type, state.queue, state.status) == ("shop.add", "default", "pending")
    assert (state.attempt, state.attempts) == (0, 3)
    assert state.group_id == state.chain_id == state.id
    assert (state.result, state.error, state.last_error, state.reason) == (None, None, None, None)
    assert (state.started_at, state.ended_at, state.worker, state.completed_by) == (None, None, None, None)
    assert state.start_at == state.queued_at
    row = Work.objects.get()
    assert (row.about_type, row.about_id) == ("shop.order", str(order.pk))


def test_a_work_can_be_queued_by_its_type_or_by_name_from_async_code_as_well():
    async def queue() -> list[Any]:
        return [
            await aenqueue(add(a=1, b=2), priority=5),
            await aenqueue("shop.add", {"a": 1, "b": 2}),
            await aenqueue("shop.fail"),
            await add.aenqueue(a=3, b=4),
        ]

    state = notify.enqueue(order_id=7).state()
    assert (state.type, state.queue) == ("shop.notify", "mail")
    without_input = enqueue("shop.fail", delay=60)
    assert Work.objects.get(id=without_input.id).input == "{}"
    handle = enqueue("shop.add", {"a": 1, "b": 2}, priority=4)
    drain(limit=1)
    assert handle.result(timeout=0) == 3
    states = [handle.state() for handle in async_to_sync(queue)()]
    assert [state.type for state in states] == ["shop.add", "shop.add", "shop.fail", "shop.add"]
    assert states[0].priority == 5


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "placed": {"queue": "mail", "priority": 7},
    "patient": {"retry": Retry(attempts=9), "timeout": 5, "lease": 60},
    "secret": {"redact": ["a"]},
    "ordered": {"order": "unit", "weight": 3, "max_running": 2},
    "alone": {"atomic": True, "options": lambda a: {}},
    "expiring": {"expires": 60},
    "labelled": {"fairness": "tenant"},
    "direct": {"skip_queue": True},
    "computed": {"options": lambda a: {"priority": a}},
}


@pytest.mark.parametrize("kind", [*KINDS, "batch"])
def test_the_row_of_a_work_is_the_same_however_it_is_queued(kind):
    if kind == "batch":
        batch = batch_work(name="t.enqueue.batch", size=2)(lambda items: [item.input for item in items])
    else:
        single = work(name="t.enqueue.single", **KINDS[kind])(lambda a: a)

    def build() -> Any:
        return batch(1) if kind == "batch" else single(a=1)

    for _ in range(2):
        enqueue(build())
        enqueue(build(), priority=None)
        enqueue_many(build())  # takes a single work for a list of one
        enqueue_many([build() for _ in range(30)])
    rows = Work.objects.values()
    assert len({row.pop("id") for row in rows}) == 66
    turns = {row.pop("sort_key") for row in rows}
    assert len(turns) == (66 if kind == "labelled" else 1), "each has its turn"
    assert len({str(sorted(since_queueing(row).items())) for row in rows}) == 1


def since_queueing(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a row, moments as the time since it was queued."""
    start = row["queued_at"]
    return {name: value - start if isinstance(value, datetime) else value for name, value in row.items()}


@pytest.mark.parametrize("delay", [0, 60])
def test_each_is_queued_at_its_own_moment_and_by_its_own_options(delay):
    options = {"delay": delay} if delay else {}
    enqueue(add(a=1, b=1), **options)
    time_travel(3600)
    enqueue(add(a=1, b=1), **options)
    first, second = Work.objects.order_by("id")
    assert [row.run_at - row.queued_at for row in (first, second)] == [timedelta(seconds=delay)] * 2
    assert abs(second.queued_at - first.queued_at - timedelta(hours=1)) < timedelta(seconds=30)
    assert abs(second.queued_at - now()) < timedelta(minutes=1)
    enqueue(add(a=1, b=1), priority=3, delay=timedelta(hours=1))
    enqueue(add(a=1, b=1))
    rows = Work.objects.order_by("id").values_list("priority", "status")[2:]
    assert [*rows] == [(3, "scheduled"), (0, "pending")]


@on_sqlite
def test_settings_and_types_apply_from_their_change_on(configure):
    before = enqueue(add(a=1, b=1)).state()
    configure(RETRY={"attempts": 7})
    after = enqueue(add(a=1, b=1)).state()
    assert (before.attempts, after.attempts) == (3, 7)
    configure(CODEC=Salted())
    assert json.loads(Work.objects.get(id=enqueue(add(a=1, b=1)).id).input)[1] == {"a": 1, "b": 1}
    for queue in ("one", "two"):
        anew = work(name="t.enqueue.anew", queue=queue)(lambda: None)
        assert enqueue(anew()).state().queue == queue


@pytest.mark.parametrize(
    "queue", [enqueue, lambda work, **options: enqueue_many([work], **options)], ids=["one", "many"]
)
@pytest.mark.parametrize(
    ("build", "options"),
    [
        (lambda: add(a=1, b=1), {"delay": 60}),
        (lambda: add(a=1, b=1), {"expires": 60}),
        (lambda: dependency(on=["a"], queue=[add(a=1, b=1)], timeout=60), {}),
    ],
    ids=["delay", "expires", "timeout"],
)
def test_a_time_that_counts_from_now_does_so_on_the_databases_clock(queue, build, options, monkeypatch):
    hours_ahead = datetime.now(UTC) + timedelta(hours=5)
    monkeypatch.setattr(database, "database_now", lambda: hours_ahead)
    clock.reset()
    queue(build(), **options)
    work = Work.objects.get()
    assert work.queued_at >= hours_ahead
    assert max(work.run_at, work.deadline or work.run_at) >= hours_ahead + timedelta(seconds=60)


@on_sqlite
def test_garbage_made_before_very_many_are_enqueued_stays_young():
    """What the collector takes for old is looked at so seldom that a process grows by all of it."""

    class Cycle:
        def __init__(self) -> None:
            self.itself = self

    requests = [add(a=number, b=0) for number in range(1_000)]
    gc.collect()
    cycle = weakref.ref(Cycle())
    enqueue_many(requests)
    gc.collect(1)
    assert cycle() is None


# --- ids of one's own, and the same request again -------------------------------------------------------


@pytest.mark.parametrize("id", ["order-17", "x" * 64, "ünïcode-№1", "a/b:c", "🦊"])
def test_any_printable_word_may_be_the_id(id):
    handle = enqueue(add(a=1, b=2), id=id)
    drain()
    assert Work.objects.get().id == handle.id == id


def test_an_id_must_be_a_short_printable_word_and_differs_by_case():
    for id in ("", "two words", "x" * 65, "nul\x00", 17):
        with pytest.raises(InvalidWorkId, match=r"1 to 64 printable characters|as a text, got: 17"):
            enqueue(add(a=1, b=2), id=id)
    assert Work.objects.count() == 0
    assert not any(enqueue(add(a=1, b=2), id=id).deduplicated for id in ("order-a", "order-A"))
    assert Work.objects.count() == 2


@pytest.mark.parametrize(
    "second", [lambda: add(a=3, b=4), lambda: dependency(["order-17"], [add(a=3, b=4)])], ids=["work", "gate"]
)
@pytest.mark.parametrize("first_has_ended", [False, True])
def test_an_id_that_exists_is_refused_and_the_transaction_goes_on(second, first_has_ended):
    enqueue(add(a=1, b=2), id="order-17")
    if first_has_ended:
        drain()
    with transaction.atomic():
        with pytest.raises(InvalidWorkId, match="a work 'order-17' exists") as raised:
            enqueue(second(), id="order-17")
        Order.objects.create(reference="after the refusal")
        enqueue(add(a=5, b=6))
    assert (raised.value.id, Order.objects.count()) == ("order-17", 1)
    assert sorted(Work.objects.values_list("input", flat=True)) == ['{"a":1,"b":2}', '{"a":5,"b":6}']


def test_queueing_a_request_again_gives_the_first_handle_and_logs_it(caplog):
    requests = [add(a=1, b=2), add(a=2, b=2)]
    with transaction.atomic():
        [_, first] = enqueue_many(requests, together=True)
        with caplog.at_level("INFO"):
            again = enqueue(requests[1], priority=9)
        Order.objects.create(reference="after the second")
    assert caplog.messages == [f"Works that exist already were not queued again: {first.id}"]
    assert (first.deduplicated, again.deduplicated) == (False, True)
    assert (again, again.group_id) == (first, requests[0].id)
    assert (set(Work.objects.values_list("priority", flat=True)), Order.objects.count()) == ({0}, 1)
    drain()
    last = enqueue(requests[1])
    assert (last.deduplicated, drain().ran, last.result(timeout=0)) == (True, 0, 4)


# --- AYEWORK["ID"] makes an id twice --------------------------------------------------------------------


@pytest.fixture
def ids(settings: Any) -> list[str]:
    """The ids to make next; after them come ids of their own."""
    made: list[str] = []
    others: Iterator[int] = itertools.count()
    settings.AYEWORK = {"ID": lambda: made.pop(0) if made else f"other-{next(others)}"}
    return made


def requests_of(ids: list[str], *make: Any) -> list[Any]:
    """Return requests that have the same id."""
    ids.extend(["same"] * len(make))
    return [one() for one in make]


#: Ways to queue a request.
WAYS: dict[str, Any] = {
    "plain": enqueue,
    "delay": lambda request: enqueue(request, delay=60),
    "skip_queue": lambda request: enqueue(request, skip_queue=True),
    "blockers": lambda request: enqueue(request, blockers=[enqueue(add(a=0, b=0))]),
    "many": lambda request: enqueue_many([add(a=0, b=0), request]),
    "together": lambda request: enqueue_many([add(a=0, b=0), request], together=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [lambda: add(a=2, b=2), fail], ids=["another input", "another type"])
def test_another_work_is_refused_and_the_transaction_goes_on_but_the_same_may_be_queued_again(ids, way, make):
    first, second = requests_of(ids, lambda: add(a=1, b=2), make)
    enqueue(first)
    with transaction.atomic():
        with pytest.raises(InvalidWorkId, match=r"AYEWORK\['ID'\].*'same' exists") as refused:
            WAYS[way](second)
        Order.objects.create(reference="after")
    assert (refused.value.id, Order.objects.count()) == ("same", 1)
    WAYS[way](first)
    assert json.loads(Work.objects.get(id="same").input) == {"a": 1, "b": 2}


def test_each_work_takes_one_id_and_different_works_of_one_batch_are_refused(ids):
    requests = requests_of(ids, lambda: add(a=1, b=2), lambda: add(a=2, b=2))
    with pytest.raises(InvalidWorkId, match="'same' exists"):
        enqueue_many(requests)
    assert not Work.objects.exists()
    assert [enqueue(add(a=1, b=n)).id for n in range(2)] == ["other-0", "other-1"]


def test_a_gate_is_not_taken_for_another_one_and_inputs_are_compared_by_their_values(ids):
    released = [add(a=1, b=1), add(a=2, b=2)]
    salted = work(name="repeated_ids.salted", codec=Salted())(lambda n: None)
    for make, message in (
        (lambda n: dependency(["x"], [released[n]]), "'same' exists"),
        (lambda n: salted(n=n), "another input"),
    ):
        first, second = requests_of(ids, lambda make=make: make(0), lambda make=make: make(1))
        assert [enqueue(first).deduplicated, enqueue(first).deduplicated] == [False, True]
        with pytest.raises(InvalidWorkId, match=message):
            enqueue(second)
        Work.objects.filter(id="same").delete()


def test_a_work_that_a_handler_queues_fails_its_attempt(ids):
    [request, child] = requests_of(ids, lambda: add(a=1, b=2), lambda: add(a=2, b=2))
    enqueue(request)
    handle = enqueue(work(name="repeated_ids.parent", retry=ONCE)(lambda ctx: ctx.queue([child]))())
    drain(raises=False)
    state = handle.state()
    assert state.status == "dead"
    assert state.error is not None and "'same' exists" in state.error


def test_a_gate_opens_although_another_work_has_the_id_of_one_that_it_releases(ids):
    """An error would undo the end of the work that the gate watches."""
    first, second = requests_of(ids, lambda: add(a=1, b=2), lambda: add(a=2, b=2))
    watched = add(a=0, b=0)
    gate = enqueue(dependency([watched], [first]))
    enqueue_many([second, watched])
    drain()
    assert (gate.state().status, Work.objects.filter(status="success").count()) == ("success", 3)
    assert json.loads(Work.objects.get(id="same").input) == {"a": 2, "b": 2}


# --- options: which level wins, and when they are decided ---------------------------------------------


@work(
    name="t.options.levels",
    priority=1,
    fairness="tg",
    retry=Retry(attempts=7, base=11),
    options=lambda n=0: {"priority": 2, "retry": Retry(base=22)},
)
def levels(n: int = 0) -> None: ...


@work(name="t.options.later", options=lambda minutes: {"delay": minutes * 60, "expires": minutes * 120})
def later(minutes: int) -> None: ...


def seconds(moment: datetime | None, state: Any) -> float:
    """Return how long after its queueing a work has a moment."""
    return (moment - state.queued_at).total_seconds()


@on_sqlite
def test_each_level_wins_over_the_next_and_retry_is_merged_field_by_field(configure):
    state = enqueue(add(a=1, b=2)).state()
    assert state.retry == RetryPolicy(attempts=3, base=1, factor=2, max=30, jitter=0.5)
    assert (state.priority, state.fairness, state.timeout, state.deadline) == (0, None, None, None)
    configure(RETRY={"attempts": 4, "factor": 9})
    state = enqueue(levels(), retry=Retry(jitter=0)).state()
    assert (state.priority, state.fairness, state.attempts) == (2, "tg", 7)
    assert state.retry == RetryPolicy(attempts=7, base=22, factor=9, max=30, jitter=0)
    given = enqueue(levels(), priority=5, fairness="q", retry=Retry(attempts=1, base=3), queue="mail").state()
    assert (given.priority, given.fairness, given.attempts, given.retry.base) == (5, "q", 1, 3)
    assert given.queue == "mail"
    none = enqueue(levels(), priority=None, retry=None, fairness=None).state()
    assert (none.priority, none.attempts, none.fairness) == (2, 7, "tg")


def test_the_options_of_ctx_queue_are_queue_time_options_of_its_own_works():
    options = {"priority": 9, "retry": Retry(jitter=0), "delay": 7, "queue": "mail"}
    parent = work(name="t.options.parent")(
        lambda ctx: ctx.queue([levels(), later(minutes=5), ctx.queue([levels(n=2)])], **options)
    )
    enqueue(parent())
    drain(limit=1)
    (state, nested), [timed] = enqueued(levels), enqueued(later)
    assert (state.priority, state.queue, state.fairness) == (9, "mail", "tg")
    assert state.retry == RetryPolicy(attempts=7, base=22, factor=2, max=30, jitter=0)
    assert (nested.priority, nested.queue, nested.retry.jitter) == (2, "default", 0.5)
    assert seconds(state.start_at, state) == seconds(timed.start_at, timed) == 7
    assert seconds(timed.deadline, timed) == 600


MOMENT = now() + timedelta(days=1)
#: A request, its options, and how many seconds after the queueing it starts and expires.
MOMENTS: dict[str, tuple[Any, dict[str, Any], Any, Any]] = {
    "computed": (later, {}, 300, 600),
    "given over computed": (later, {"delay": 7}, 7, 600),
    "run_at over a computed delay": (later, {"run_at": MOMENT}, MOMENT, 600),
    "deadline over a computed expires": (later, {"deadline": MOMENT}, 300, MOMENT),
    "timedelta": (add, {"delay": timedelta(minutes=1)}, 60, None),
    "run_at over delay": (add, {"delay": 5, "run_at": MOMENT}, MOMENT, None),
    "deadline over expires": (add, {"expires": 5, "deadline": MOMENT}, 0, MOMENT),
    "expires counts from the queueing": (add, {"expires": timedelta(minutes=1), "delay": 30}, 30, 60),
    "no time at all": (add, {"expires": 0}, 0, 0),
}


@on_sqlite
@pytest.mark.parametrize(("type_", "options", "start", "deadline"), MOMENTS.values(), ids=MOMENTS)
def test_start_and_deadline(type_, options, start, deadline):
    state = enqueue(type_(minutes=5) if type_ is later else add(a=1, b=2), **options).state()
    assert state.status == ("scheduled" if start else "pending")
    for actual, expected in ((state.start_at, start), (state.deadline, deadline)):
        assert expected in (actual, None if actual is None else seconds(actual, state))


def test_a_start_in_the_past_is_kept_and_the_work_runs_at_once():
    past = now() - timedelta(days=1)
    handle = enqueue(add(a=1, b=2), run_at=past)
    assert handle.state().status == "pending"
    assert drain().succeeded == 1
    assert handle.state().start_at == past


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_start_at_an_end_of_the_calendar_can_be_read_and_shown_in_every_time_zone(zone):
    with override(zone):
        for end, status in ((datetime.min, "pending"), (datetime.max, "scheduled")):
            handle = enqueue(add(a=1, b=2), run_at=make_aware(end))
            assert handle.state().status == explain(handle.id).status == status


@on_sqlite
def test_options_are_decided_when_the_work_is_queued(configure):
    def declare(n: int) -> Any:
        return work(name="t.options.changing", retry=Retry(attempts=n), timeout=n, queue=f"q{n}")(
            lambda: None
        )

    configure(RETRY={"base": 5})
    handle = enqueue(declare(2)())
    declare(9)
    configure(RETRY={"base": 6})
    state = handle.state()
    assert (state.attempts, state.timeout, state.queue, state.retry.base) == (2, 2, "q2", 5)


def test_extreme_numbers_survive():
    least, most = -(2**31 - 1), 10**12
    state = enqueue(add(a=1, b=2), priority=least, delay=most, timeout=most, retry=Retry(max=most)).state()
    assert (state.priority, state.start_at.year, state.timeout, state.retry.max) == (least, 9999, most, most)
