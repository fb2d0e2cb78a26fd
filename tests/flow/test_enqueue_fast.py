"""Queueing costs few statements, and promises the same however it goes about it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, NotEncodable, Retry, dependency, enqueue, enqueue_many, registry, work
from django_ayework.models import Work
from django_ayework.signals import work_queued
from django_ayework.store import clock as clock_module
from django_ayework.store.clock import clock
from django_ayework.store.insert import PIECE
from django_ayework.testing import now
from tests.app.models import Order
from tests.app.works import add, notify
from tests.flow.conftest import Configure

MANY = PIECE + 103


class Secret:
    """What no message may speak of."""


@work(name="t.fast.secret", redact=["card"])
def charge(card: Any) -> None: ...


@work(name="t.fast.spread")
def spread(ctx: Context, count: int) -> Any:
    return ctx.queue([add(a=n, b=0) for n in range(count)]).next(add(a=0, b=0))


def verbs(queries: CaptureQueriesContext) -> list[str]:
    """What the statements do that are not about transactions; one that is run for many rows counts once."""
    words = (re.sub(r"^\d+ times: ", "", query["sql"]).split()[0] for query in queries)
    return [word for word in words if word not in ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")]


@pytest.mark.django_db(transaction=True)
def test_many_works_cost_few_statements(database_vendor: str) -> None:
    with CaptureQueriesContext(connection) as queries:
        enqueue_many([add(a=n, b=0) for n in range(MANY)])
    assert (
        verbs(queries)
        == {
            "postgresql": ["COPY"],
            "sqlite": ["INSERT", "INSERT"],
            "mysql": ["INSERT", "INSERT"],
        }[database_vendor]
    )
    assert Work.objects.count() == MANY


@pytest.mark.django_db(transaction=True)
def test_children_and_their_gate_are_inserted_as_quickly(drain: Any, database_vendor: str) -> None:
    enqueue(spread(count=100))
    with CaptureQueriesContext(connection) as queries:
        drain(limit=1)
    table = connection.ops.quote_name(Work._meta.db_table)
    new_works = [sql for query in queries if (sql := query["sql"]).find(table) > 0 and "UPDATE" not in sql]
    inserts = [sql for sql in new_works if "INSERT INTO" in sql or "COPY" in sql]
    assert len(inserts) == 1, "the children and the gate together"
    assert ("COPY" in inserts[0]) is (database_vendor == "postgresql")
    assert Work.objects.count() == 102


@pytest.mark.django_db
def test_a_bad_input_among_many_is_named_and_nothing_is_queued() -> None:
    works = [add(a=n, b=0) for n in range(MANY)]
    with transaction.atomic():
        with pytest.raises(
            NotEncodable, match=r"the input of 'shop.add' cannot be stored: .* at input\['b'\]"
        ):
            enqueue_many([*works, add(a=0, b=object()), add(a=0, b=0)])
        Order.objects.create(reference="after")
        enqueue(add(a=1, b=2))
    assert Work.objects.count() == Order.objects.count() == 1


@pytest.mark.django_db
def test_a_bad_input_among_many_shows_no_secret() -> None:
    works = [charge(card="4111") for _ in range(MANY)]
    with pytest.raises(NotEncodable) as raised:
        enqueue_many([*works, charge(card={"number": Secret()}), charge(card="4111")])
    assert str(raised.value).endswith("cannot be stored: •••• at input['card']['number']")


@pytest.mark.django_db
def test_works_of_several_types_go_together() -> None:
    handles = enqueue_many(
        [add(a=n, b=0) if n % 3 else notify(order_id=n) for n in range(MANY)], priority=4, delay=60
    )
    stored = {row.id: row for row in Work.objects.all()}
    assert [stored[handle.id].type for handle in handles[:4]] == [
        "shop.notify",
        "shop.add",
        "shop.add",
        "shop.notify",
    ]
    assert stored[handles[3].id].input == '{"order_id":3}'
    assert {(row.type, row.queue) for row in stored.values()} == {
        ("shop.add", "default"),
        ("shop.notify", "mail"),
    }
    assert {(row.priority, row.status) for row in stored.values()} == {(4, "scheduled")}
    assert len({row.run_at for row in stored.values()}) == 1


@work(name="t.fast.own", options=lambda n: {"priority": n % 3} if n % 2 else {})
def own(n: int) -> None: ...


@pytest.mark.django_db
def test_options_that_a_type_computes_are_each_works_own_among_many() -> None:
    handles = enqueue_many([own(n=n) for n in range(MANY)])
    stored = {row.id: row.priority for row in Work.objects.all()}
    assert [stored[handle.id] for handle in handles[:6]] == [0, 1, 0, 0, 0, 2]


@pytest.mark.django_db
def test_works_that_are_there_are_told_apart_among_many() -> None:
    works = [add(a=n, b=0) for n in range(MANY)]
    enqueue_many(works[:3], together=True)
    handles = enqueue_many(works)
    assert [handle.deduplicated for handle in handles] == [True] * 3 + [False] * (MANY - 3)
    assert [handle.group_id for handle in handles[:4]] == [works[0].id] * 3 + [works[3].id]
    assert Work.objects.count() == MANY


@pytest.mark.django_db(transaction=True)
def test_who_listens_hears_of_each_of_many() -> None:
    heard = []

    def receiver(work: Any, **keywords: Any) -> None:
        heard.append(work.id)

    work_queued.connect(receiver)
    try:
        handles = enqueue_many([add(a=n, b=0) for n in range(MANY)])
    finally:
        work_queued.disconnect(receiver)
    assert heard == [handle.id for handle in handles]


@pytest.mark.django_db
def test_many_works_and_a_gate_go_together(drain: Any) -> None:
    works = [add(a=n, b=0) for n in range(30)]
    enqueue_many([*works, dependency(works, [add(a=5, b=5)])])
    drain()
    assert Work.objects.filter(status="success").count() == 32


@pytest.mark.django_db
def test_many_works_are_due_in_the_order_given(drain: Any) -> None:
    handles = enqueue_many([add(a=n, b=0) for n in range(30)])
    assert [row.id for row in Work.objects.order_by("run_at", "id")] == [handle.id for handle in handles]


@pytest.mark.django_db
def test_a_policy_of_the_settings_applies_from_its_change_on(configure: Configure) -> None:
    before = enqueue(add(a=1, b=1)).state()
    configure(RETRY={"attempts": 7})
    after = enqueue(add(a=1, b=1)).state()
    assert before and after
    assert (before.attempts, after.attempts) == (3, 7)


@pytest.mark.django_db
def test_a_type_that_is_defined_anew_is_queued_as_it_now_is() -> None:
    try:
        first = work(name="t.fast.anew", queue="one")(lambda: None)
        enqueue(first())
        second = work(name="t.fast.anew", queue="two", retry=Retry(attempts=1))(lambda: None)
        enqueue(second())
    finally:
        registry.unregister("t.fast.anew")
    assert sorted(Work.objects.values_list("queue", flat=True)) == ["one", "two"]


@pytest.mark.django_db
def test_delays_count_from_each_enqueue(time_travel: Any) -> None:
    first = enqueue(add(a=1, b=1), delay=60).state()
    time_travel(3600)
    second = enqueue(add(a=1, b=1), delay=60).state()
    assert first and second
    assert (second.start_at - first.start_at).total_seconds() == pytest.approx(3600, abs=30)
    assert second.start_at > now()


@pytest.mark.django_db
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
def test_a_time_that_counts_from_now_does_so_on_the_databases_clock(
    queue: Any, build: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    hours_ahead = datetime.now(UTC) + timedelta(hours=5)
    monkeypatch.setattr(clock_module, "database_now", lambda: hours_ahead)
    clock.reset()
    queue(build(), **options)
    work = Work.objects.get()
    assert work.queued_at >= hours_ahead
    assert max(work.run_at, work.deadline or work.run_at) >= hours_ahead + timedelta(seconds=60)


@pytest.mark.django_db
def test_no_works_at_all_ask_nothing_of_the_database() -> None:
    with CaptureQueriesContext(connection) as queries:
        assert enqueue_many([]) == []
    assert len(queries) == 0
