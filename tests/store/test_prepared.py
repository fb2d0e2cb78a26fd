"""Prepared statements: where they are used, and that their plans stay good."""

import asyncio
import re
import tempfile
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
from django_ayework.store import claims, dependencies
from django_ayework.store.claims import CLAIM_LANE, CLAIM_LANES
from django_ayework.store.connections import WORTHWHILE, keeps_plans, run_prepared
from django_ayework.store.database import fetch, run
from django_ayework.store.dependencies import Outcomes
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
def own_session():
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
    """The first words of the statements that this session has prepared."""
    return [
        statement.split()[0] for (statement,) in fetch("SELECT statement FROM pg_prepared_statements", ())
    ]


def enqueue_times(number: int) -> list[str]:
    return [enqueue(add(a=1, b=2)).id for _ in range(number)]


def count(ids: list[str]) -> int:
    return Work.objects.filter(id__in=ids).count()


@contextmanager
def sent_by_driver():
    """Trace the driver; yield a list that gets the first words of its statements, and their number."""
    pgconn, found = connection.connection.pgconn, []
    with tempfile.TemporaryFile("w+") as trace:
        pgconn.trace(trace.fileno())
        try:
            yield found
        finally:
            pgconn.untrace()
            trace.seek(0)
            text = trace.read()
            found += STATEMENT.findall(text), len(re.findall(r"\tF\t\d+\t(?:Query|Execute)\t", text))


@direct
def test_a_session_that_goes_on_enqueueing_prepares_its_insert_and_nothing_of_the_project():
    enqueue_times(WORTHWHILE)
    assert prepared_here() == []
    assert count(enqueue_times(3)) == 3
    with connection.cursor() as cursor:
        for _ in range(10):
            cursor.execute("SELECT %s", [1])
        cursor.executemany("SELECT %s", [(1,)] * 10)
    assert prepared_here() == ["INSERT"]
    with CaptureQueriesContext(connection) as captured:  # watched statements go through Django's cursors
        enqueue(add(a=1, b=2))
    assert [query["sql"].split()[0] for query in captured] == ["INSERT"]
    connection.close()
    assert enqueue(add(a=1, b=2)).state() is not None
    assert prepared_here() == []


@direct
@pytest.mark.parametrize("statement", ["DISCARD ALL", "DEALLOCATE ALL"])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_a_project_may_discard_prepared_statements(statement, inside):
    """In a transaction the error could not be mended, so none may come."""
    is_before = not inside or statement == "DISCARD ALL"  # which no transaction takes
    enqueue_times(WORTHWHILE + 2)
    for _ in range(2):
        run(statement) if is_before else None
        with transaction.atomic() if inside else nullcontext():
            None if is_before else run(statement)
            ids = enqueue_times(3)
        assert count(ids) == 3
    assert prepared_here() == ["INSERT"]


def test_a_session_that_enqueues_is_sent_the_inserts_alone(django_assert_num_queries):
    """As the driver sees it, past Django: nothing is asked to find out whether to prepare."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")  # which begins the transaction
        with sent_by_driver() as sent:
            ids = enqueue_times(WORTHWHILE + 3)
    assert count(ids) == WORTHWHILE + 3
    assert (set(sent[0]), sent[1]) == ({"INSERT"}, WORTHWHILE + 3)
    connection.close()
    for _ in range(WORTHWHILE + 3):  # and as Django counts them
        with django_assert_num_queries(1):
            enqueue(add(a=1, b=2))


@direct
def test_a_prepared_statement_joins_the_transaction_and_is_refused_in_an_event_loop():
    enqueue_times(WORTHWHILE + 1)
    before = Work.objects.count()
    with transaction.atomic():
        enqueue(add(a=1, b=2))
        transaction.set_rollback(True)

    async def enqueue_here() -> None:
        enqueue(add(a=1, b=2))

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(enqueue_here())
    assert Work.objects.count() == before


@direct
def test_a_prepared_statement_raises_djangos_errors_and_breaks_a_transaction_as_others_do():
    with engine_session():
        database = connections["default"]
        with pytest.raises(DataError) as failed, transaction.atomic():
            run_prepared(database, "SELECT 1 / %s::int", [0])
        assert type(failed.value.__cause__).__module__ == "psycopg.errors"
        with transaction.atomic():
            transaction.set_rollback(True)
            with pytest.raises(TransactionManagementError):
                run_prepared(database, "SELECT %s::int", [1])


@direct
def test_only_sessions_of_the_engine_keep_plans(monkeypatch):
    def work() -> None:
        for _ in range(5):
            enqueue(add(a=1, b=2))
            claims.claim("default", {add.name: 1}, 1, claims.new_lease("w"))

    work()
    assert prepared_here() == ["INSERT"]
    assert not keeps_plans(connections["default"])
    connection.close()
    with engine_session():
        assert keeps_plans(connections["default"])
        work()
        assert sorted(set(prepared_here())) == ["INSERT", "UPDATE"]
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    with engine_session():
        assert not keeps_plans(connections["default"])
        assert prepared_here() == []


@direct
def test_a_session_of_the_engine_makes_each_plan_once_and_looks_rows_up_one_by_one():
    """Left to itself the server makes another plan for each waiter."""
    with engine_session():
        assert [run(f"SHOW enable_{scan}") for scan in ("seqscan", "bitmapscan")] == ["off", "off"]
        for number in range(10):
            dependencies.resolve_waiters((), Outcomes({f"work{number}": Status.SUCCESS}, {}))
        plans = "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE %s"
        assert fetch(plans, ("%fresh%",)) == [(10, 0)]


@pytest.mark.parametrize("pooled", [pytest.param(True, marks=direct), False])
def test_behind_a_pooler_or_without_server_side_cursors_nothing_is_prepared(monkeypatch, pooled):
    """A pooler names a process to its clients that is not the server's."""
    connection.ensure_connection()
    if pooled:
        monkeypatch.setattr(type(connection.connection.info), "backend_pid", 1)
    else:
        monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    enqueue_times(WORTHWHILE + 3)
    assert prepared_here() == []


@direct
def test_an_insert_of_a_taken_id_does_not_recognise_the_session():
    """It makes no row; the next one does."""
    for number in range(WORTHWHILE - 1):
        enqueue(add(a=1, b=2), id=f"taken-{number}")
    with pytest.raises(InvalidWorkId):
        enqueue(add(a=1, b=2), id="taken-0")
    for prepared in ([], ["INSERT"]):
        enqueue(add(a=1, b=2))
        assert prepared_here() == prepared


@direct
@pytest.mark.usefixtures("known_to_be_empty")
@pytest.mark.parametrize(
    ("statement", "arguments"),
    [
        (CLAIM_LANE, "'w', now(), now(), 'q', 't', 1"),
        (CLAIM_LANES, "'w', now(), now(), '{t,u}', '{1,1}', 'q', 1, 'q'"),
        (dependencies.RESOLVE, "'{a}', '{f}', '{success}', '{dead}'"),
    ],
    ids=["claim a lane", "claim lanes", "resolve"],
)
def test_a_plan_that_was_made_for_an_empty_table_reads_indexes(statement, arguments):
    for place in range(statement.count("%s")):
        statement = statement.replace("%s", f"${place + 1}", 1)
    with engine_session():
        run("SET plan_cache_mode = force_generic_plan")
        run(f"PREPARE kept AS {statement}")
        plan = "\n".join(line for (line,) in fetch(f"EXPLAIN EXECUTE kept({arguments})", ()))
    assert "Seq Scan" not in plan
    assert_reads_by_key(plan)


@direct
@pytest.mark.usefixtures("known_to_be_empty")
def test_all_kept_plans_of_a_worker_read_by_key():
    """A plan that joins a handful of rows by going through the whole index is a bad one an hour later."""
    with engine_session():
        for number in (1, 2, 3):
            enqueue_many([add(a=1, b=n) for n in range(number)])
            enqueue(dependency([enqueue(add(a=1, b=2))], [add(a=3, b=4)]))
            while succeed(*claim_all().values()).moved:
                continue
        kept = fetch("SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements", ())
        for name, statement, number in kept:
            plan = fetch(f"EXPLAIN EXECUTE {name}({', '.join(['NULL'] * number)})", ())
            assert_reads_by_key("\n".join([statement, *(line for (line,) in plan)]))
    assert {"INSERT", "UPDATE", "WITH"} <= {statement.split()[0] for _, statement, _ in kept}


def assert_reads_by_key(plan: str) -> None:
    """Each index is looked up with keys, none is read from end to end."""
    lines = plan.splitlines()
    scans = [place for place, line in enumerate(lines) if "Index Scan" in line or "Index Only Scan" in line]
    assert scans or "Insert on" in plan, plan
    assert all("Index Cond" in lines[place + 1] for place in scans), plan
