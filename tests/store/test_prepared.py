"""Prepared statements: where they are used, and that their plans stay good."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DataError, connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_ayework import dependency, enqueue, enqueue_many
from django_ayework.errors import InvalidWorkId
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.rules.states import Status
from django_ayework.store import claims, groups, prepared, resolution
from django_ayework.store.claims import CLAIM_LANE, CLAIM_LANES
from django_ayework.store.clock import clock
from django_ayework.store.dependencies import Outcomes
from django_ayework.store.prepared import WORTHWHILE
from django_ayework.store.sessions import engine_session
from tests.app.works import add
from tests.races.rivals import claim_all, succeed
from tests.store.plans import analyse

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("postgresql")]
#: Behind PgBouncer (see tests/pgbouncer.py) no session is ours alone.
is_pooled = bool(settings.DATABASES["default"].get("DISABLE_SERVER_SIDE_CURSORS"))
#: The first word of a statement, as libpq traces it.
STATEMENT = re.compile(r'\tF\t\d+\t(?:Query\t "|Parse\t "[^"]*" ")\s*(\w+)')
direct = pytest.mark.skipif(is_pooled, reason="sessions are lent here")


@pytest.fixture(autouse=True)
def a_session_of_its_own():
    connection.close()
    yield
    connection.close()


@pytest.fixture
def known_to_be_empty():
    """Otherwise the planner expects some pages in each table."""
    for model in (Work, Edge, Waiter, Group):
        analyse(model._meta.db_table)
    connection.close()


def prepared_here() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [row[0] for row in cursor.fetchall()]


@contextmanager
def sent_by_driver() -> Iterator[Callable[[], tuple[list[str], int]]]:
    """Trace the driver; yield what tells the first words of what it has sent, and how often it executed."""
    pgconn = connection.connection.pgconn
    with tempfile.TemporaryFile("w+") as trace:
        pgconn.trace(trace.fileno())
        try:
            yield lambda: found
        finally:
            pgconn.untrace()
            trace.seek(0)
            text = trace.read()
            found = STATEMENT.findall(text), len(re.findall(r"\tF\t\d+\t(?:Query|Execute)\t", text))


def claim_one() -> list[str]:
    now = clock.now()
    return [row.id for row in claims.claim("default", {add.name: 1}, 1, "w", now, now)]


@direct
def test_a_connection_that_goes_on_queueing_prepares_its_insert():
    for _ in range(WORTHWHILE):
        enqueue(add(a=1, b=2))
    assert prepared_here() == []
    ids = [enqueue(add(a=1, b=2)).id for _ in range(3)]
    assert [statement.split()[0] for statement in prepared_here()] == ["INSERT"]
    assert Work.objects.filter(id__in=ids).count() == 3


@direct
@pytest.mark.parametrize("statement", ["DISCARD ALL", "DEALLOCATE ALL"])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_a_project_may_take_away_what_is_prepared(statement, inside):
    """In a transaction the error could not be mended, so none may come."""
    for _ in range(WORTHWHILE + 2):
        enqueue(add(a=1, b=2))
    for _ in range(2):
        if statement == "DISCARD ALL" or not inside:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        with transaction.atomic() if inside else nullcontext():
            if statement != "DISCARD ALL" and inside:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
            ids = [enqueue(add(a=1, b=2)).id for _ in range(3)]
        assert Work.objects.filter(id__in=ids).count() == 3
    assert [each.split()[0] for each in prepared_here()] == ["INSERT"]


@direct
def test_a_session_that_enqueues_prepares_nothing_of_the_projects():
    for _ in range(WORTHWHILE + 2):
        enqueue(add(a=1, b=2))
    with connection.cursor() as cursor:
        for _ in range(10):
            cursor.execute("SELECT %s", [1])
        cursor.executemany("SELECT %s", [(1,)] * 10)
    assert [each.split()[0] for each in prepared_here()] == ["INSERT"]


def test_somebody_who_counts_statements_counts_the_insert_alone(django_assert_num_queries):
    for _ in range(WORTHWHILE + 3):
        with django_assert_num_queries(1):
            enqueue(add(a=1, b=2))


def test_the_session_of_whoever_enqueues_is_sent_the_inserts_alone():
    """As the driver sees it, past Django: nothing is asked to find out whether to prepare."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")  # which begins the transaction
        with sent_by_driver() as sent:
            ids = [enqueue(add(a=1, b=2)).id for _ in range(WORTHWHILE + 3)]
    assert Work.objects.filter(id__in=ids).count() == WORTHWHILE + 3
    statements, executions = sent()
    assert set(statements) == {"INSERT"}
    assert executions == WORTHWHILE + 3


@direct
def test_what_is_prepared_joins_the_transaction_at_hand():
    for _ in range(WORTHWHILE + 1):
        enqueue(add(a=1, b=2))
    before = Work.objects.count()
    with transaction.atomic():
        enqueue(add(a=1, b=2))
        transaction.set_rollback(True)
    assert Work.objects.count() == before


@direct
def test_what_is_prepared_is_refused_in_an_event_loop():
    """As everything else that waits for the database there; Django's cursors see to it otherwise."""
    for _ in range(WORTHWHILE + 1):
        enqueue(add(a=1, b=2))
    before = Work.objects.count()

    async def enqueue_here() -> None:
        enqueue(add(a=1, b=2))

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(enqueue_here())
    assert Work.objects.count() == before


@direct
def test_what_is_prepared_raises_djangos_errors_and_breaks_a_transaction_as_others_do():
    with engine_session():
        database = connections["default"]
        with pytest.raises(DataError) as failed, transaction.atomic():
            prepared.run_prepared(database, "SELECT 1 / %s::int", [0])
        assert type(failed.value.__cause__).__module__ == "psycopg.errors"
        with transaction.atomic():
            transaction.set_rollback(True)
            with pytest.raises(TransactionManagementError):
                prepared.run_prepared(database, "SELECT %s::int", [1])


@direct
def test_a_session_that_took_the_place_of_another_prepares_its_own():
    for _ in range(WORTHWHILE + 1):
        enqueue(add(a=1, b=2))
    connection.close()
    assert enqueue(add(a=1, b=2)).state() is not None
    assert prepared_here() == []


@direct
def test_only_sessions_of_the_engine_keep_plans():
    for _ in range(5):
        enqueue(add(a=1, b=2))
        claim_one()
    assert [statement.split()[0] for statement in prepared_here()] == ["INSERT"]
    assert not prepared.keeps_plans(connections["default"])
    connection.close()
    with engine_session():
        assert prepared.keeps_plans(connections["default"])
        for _ in range(5):
            enqueue(add(a=1, b=2))
            claim_one()
        assert sorted({statement.split()[0] for statement in prepared_here()}) == ["INSERT", "UPDATE"]


@direct
def test_where_nothing_may_be_prepared_a_session_of_the_engine_keeps_no_plans(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    with engine_session():
        assert not prepared.keeps_plans(connections["default"])
        assert prepared_here() == []


@direct
@pytest.mark.parametrize("scan", ["seqscan", "bitmapscan"])
def test_a_session_of_the_engine_looks_rows_up_one_by_one(scan):
    with engine_session(), connection.cursor() as cursor:
        cursor.execute(f"SHOW enable_{scan}")
        assert cursor.fetchone() == ("off",)


@direct
def test_a_session_of_the_engine_makes_each_plan_once():
    """Left to itself the server makes another plan each time a waiter is told."""
    with engine_session(), connection.cursor() as cursor:
        for number in range(10):
            resolution.resolve_waiters((), Outcomes({f"work{number}": Status.SUCCESS}, {}))
        cursor.execute(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE '%fresh%'"
        )
        assert cursor.fetchall() == [(10, 0)]


def test_where_somebody_watches_statements_they_go_through_djangos_cursors():
    for _ in range(WORTHWHILE + 1):
        enqueue(add(a=1, b=2))
    with CaptureQueriesContext(connection) as captured:
        enqueue(add(a=1, b=2))
    assert [query["sql"].split()[0] for query in captured] == ["INSERT"]


@direct
def test_behind_a_pooler_nothing_is_prepared(monkeypatch):
    """A pooler names a process to its clients that is not the server's."""
    connection.ensure_connection()
    monkeypatch.setattr(type(connection.connection.info), "backend_pid", 1)
    for _ in range(WORTHWHILE + 3):
        enqueue(add(a=1, b=2))
    assert prepared_here() == []


@direct
def test_an_id_that_is_taken_tells_nothing_of_the_session():
    """The INSERT that would have recognised the session makes no row; the next one does it."""
    for _ in range(WORTHWHILE - 1):
        enqueue(add(a=1, b=2), id=f"taken-{_}")
    with pytest.raises(InvalidWorkId):
        enqueue(add(a=1, b=2), id="taken-0")
    enqueue(add(a=1, b=2))
    assert prepared_here() == []
    enqueue(add(a=1, b=2))
    assert [statement.split()[0] for statement in prepared_here()] == ["INSERT"]


def test_with_server_side_cursors_disabled_nothing_is_prepared(monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    for _ in range(WORTHWHILE + 3):
        enqueue(add(a=1, b=2))
    assert prepared_here() == []


@direct
@pytest.mark.parametrize(
    ("statement", "arguments"),
    [
        (
            CLAIM_LANE,
            "'w', now(), now(), 'q', 't', 1",
        ),
        (
            CLAIM_LANES,
            "'w', now(), now(), '{t,u}', '{1,1}', 'q', 1, 'q'",
        ),
        (resolution.RESOLVE, "'{a}', '{f}', '{success}', '{dead}'"),
        (groups.COUNT, "1, 1, 0, '2', false, 1, 1, now(), 'g'"),
    ],
)
def test_a_plan_that_was_made_for_an_empty_table_reads_indexes(statement, arguments, known_to_be_empty):
    places = statement.count("%s")
    for place in range(places):
        statement = statement.replace("%s", f"${place + 1}", 1)
    with engine_session(), connection.cursor() as cursor:
        cursor.execute("SET plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE kept AS {statement}")
        cursor.execute(f"EXPLAIN EXECUTE kept({arguments})")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "Seq Scan" not in plan
    assert_reads_by_key(plan)


@direct
@pytest.mark.usefixtures("known_to_be_empty")
def test_whatever_a_worker_keeps_a_plan_of_stays_quick_when_tables_grow():
    """A plan that joins a handful of rows by going through the whole index is a bad one an hour later."""
    with engine_session():
        for number in (1, 2, 3):
            enqueue_many([add(a=1, b=n) for n in range(number)])
            watched = enqueue(add(a=1, b=2))
            enqueue(dependency([watched], [add(a=3, b=4)]))
            assert list(iter(settle_all, 0))
        with connection.cursor() as cursor:
            cursor.execute("SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements")
            kept = cursor.fetchall()
            for name, statement, number in kept:
                cursor.execute(f"EXPLAIN EXECUTE {name}({', '.join(['NULL'] * number)})")
                assert_reads_by_key(f"{statement}\n" + "\n".join(row[0] for row in cursor.fetchall()))
    assert {"INSERT", "UPDATE", "WITH"} <= {statement.split()[0] for _, statement, _ in kept}


def settle_all() -> int:
    """Settle whatever is due; return how much that was."""
    return len(succeed(*claim_all().values()).moved)


def assert_reads_by_key(plan: str) -> None:
    """Each index is looked up with keys, none is read from end to end."""
    lines = plan.splitlines()
    scans = [place for place, line in enumerate(lines) if "Index Scan" in line or "Index Only Scan" in line]
    assert scans or "Insert on" in plan, plan
    assert all("Index Cond" in lines[place + 1] for place in scans), plan
