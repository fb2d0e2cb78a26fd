"""The hot statements use the indexes named after them, however many other rows there are."""

from datetime import timedelta

import pytest
from django.db import connection

from django_ayework.models import Work
from django_ayework.store import retention, transitions
from django_ayework.store.ahead import works_ahead
from django_ayework.store.clock import clock
from django_ayework.store.counts import dead_letters, depths_of
from django_ayework.store.database import atomic
from django_ayework.store.dedup import Search, newest_matches
from django_ayework.store.leases import lock_lapsed, lock_overdue
from django_ayework.store.look import look, queues_with_work
from django_ayework.testing.factories import WorkFactory

RETAINED = 200_000

#: A table of numbers, by vendor.
NUMBERS = {
    "postgresql": f"SELECT g AS n FROM generate_series(1, {RETAINED}) AS g",
    "mysql": f"SELECT seq AS n FROM seq_1_to_{RETAINED}",
    "sqlite": (
        "WITH RECURSIVE g(n) AS "
        f"(SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {RETAINED}) SELECT n FROM g"
    ),
}
COLUMNS = (
    "type, queue, reason, priority, fairness, input, options, error, attempt, delivery, chain_index, "
    "queued_at, run_at, "
    "id, status, ended_at, dedup_key"
)


@pytest.fixture(scope="module")
def crowded(django_db_setup, django_db_blocker):
    """A table with 200 000 finished and 200 000 far-future works; emptied afterwards.

    The finished ones have had one dedup key, over and over; the others have one each.
    """
    with django_db_blocker.unblock():
        crowd()
        yield
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM django_ayework_work")


def crowd() -> None:
    now = clock.now()
    moment = connection.ops.adapt_datetimefield_value
    with connection.cursor() as cursor:
        for prefix, status, run_at, ended_at in (
            ("f", "success", now, now),
            ("s", "scheduled", now + timedelta(days=1), None),
        ):
            name = f"CONCAT('{prefix}', n)" if connection.vendor == "mysql" else f"'{prefix}' || n"
            key = "'tick'" if ended_at else name
            cast = "CAST(%s AS timestamptz)" if connection.vendor == "postgresql" else "%s"
            cursor.execute(
                f"INSERT INTO django_ayework_work ({COLUMNS}) "
                f"SELECT 'shop.add', 'default', '', 0, '', '{{}}', '{{}}', '', 0, 0, 0, {cast}, {cast}, "
                f"{name}, '{status}', {cast}, {key} FROM ({NUMBERS[connection.vendor]}) AS numbers",
                [moment(now), moment(run_at), moment(ended_at) if ended_at else None],
            )
        table = "TABLE django_ayework_work" if connection.vendor == "mysql" else "django_ayework_work"
        cursor.execute(f"ANALYZE {table}")
        cursor.fetchall() if connection.vendor == "mysql" else None


def plans_of(act) -> list[str]:
    """Run a store function; return the plan of each statement it ran over works."""
    seen = []

    def note(execute, sql, params, many, context):
        if "django_ayework_work" in sql and sql.split()[0] in ("SELECT", "UPDATE", "DELETE"):
            seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        act()
    assert seen, "no statement over works was run"
    return [explained(sql, params) for sql, params in seen]


def explained(sql, params) -> str:
    verb = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{verb} {sql}", params)
        return "\n".join(" ".join(map(str, row)) for row in cursor.fetchall())


def assert_reads_through(index: str, plans: list[str]) -> None:
    assert any(index in plan for plan in plans), plans
    for plan in plans:
        assert not scans_table(plan), plan


def scans_table(plan: str) -> bool:
    return {
        "postgresql": "Seq Scan on django_ayework_work" in plan,
        "sqlite": any(
            line.split(maxsplit=3)[-1].startswith("SCAN django_ayework_work") and "INDEX" not in line
            for line in plan.splitlines()
        ),
        "mysql": "django_ayework_work ALL " in plan,
    }[connection.vendor]


@pytest.mark.django_db
@pytest.mark.usefixtures("crowded")
class TestPlans:
    def test_claiming_reads_pending_works_of_the_queue_in_order(self):
        WorkFactory.create_batch(20)
        plans = plans_of(lambda: transitions.claim("default", 5, "w", clock.now(), clock.now()))
        assert_reads_through("ayework_claim", plans)
        assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans), plans

    def test_staging_reads_due_works(self):
        WorkFactory.create_batch(3, status="scheduled")
        assert_reads_through("ayework_due", plans_of(lambda: transitions.stage(clock.now(), 100)))

    def test_reclaiming_reads_lapsed_leases(self):
        past = clock.now() - timedelta(minutes=1)
        WorkFactory.create_batch(3, status="running", worker="w", leased_until=past)
        with atomic():
            assert_reads_through("ayework_lapsed", plans_of(lambda: lock_lapsed(clock.now(), 100, ())))

    def test_expiring_gates_reads_overdue_ones(self):
        with atomic():
            assert_reads_through("ayework_overdue", plans_of(lambda: lock_overdue(clock.now(), 100)))

    def test_an_idle_look_reads_indexes_only(self):
        plans = plans_of(lambda: look(clock.now()))
        assert_reads_through("ayework_due", plans)

    def test_finding_queues_hops_through_the_claim_index(self):
        WorkFactory(queue="mail")
        plans = plans_of(lambda: queues_with_work("default"))
        assert not any(scans_table(plan) for plan in plans), plans

    def test_pruning_reads_ended_works_in_order(self):
        before = clock.now() - timedelta(days=1)
        plans = plans_of(lambda: retention.delete_ended("success", before, 100))
        assert_reads_through("ayework_ended", plans[:1])

    def test_the_far_future_is_left_alone(self):
        assert transitions.stage(clock.now(), 100) == 0
        assert Work.objects.filter(status="pending").count() == 0

    @pytest.mark.parametrize(
        ("status", "index"),
        [("pending", "ayework_claim"), ("running", "ayework_lapsed"), ("blocked", "ayework_overdue")],
    )
    def test_counting_live_works_reads_those_alone(self, status, index):
        WorkFactory.create_batch(3, status=status)
        assert_reads_through(index, plans_of(lambda: depths_of(status)))

    def test_listing_dead_letters_reads_those_alone(self):
        WorkFactory.create_batch(3, status="dead")
        assert_reads_through("ayework_ended", plans_of(lambda: dead_letters(10)))

    def test_works_ahead_are_the_beginning_of_the_claim_index(self):
        last = WorkFactory.create_batch(20)[-1]
        plans = plans_of(lambda: works_ahead(last.id, "default", 1000))
        assert_reads_through("ayework_claim", plans)
        assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans), plans
        assert works_ahead(last.id, "default", 1000) == 19

    @pytest.mark.parametrize("keys", [["s7"], [f"s{number}" for number in range(1, 100)]])
    @pytest.mark.parametrize("scope", ["incomplete", "any"])
    def test_looking_for_a_dedup_key_reads_the_works_of_that_key_alone(self, keys, scope):
        since = clock.now() - timedelta(days=1)
        search = Search("shop.add", scope, since, ("s8",))
        assert_reads_through("ayework_dedup", plans_of(lambda: newest_matches(search, keys)))

    def test_looking_for_a_key_that_recurs_passes_over_all_that_have_ended(self):
        current = WorkFactory(dedup_key="tick").id
        search = Search("shop.add", "incomplete", None, ())
        plans = plans_of(lambda: newest_matches(search, ["tick"]))
        assert_reads_through("ayework_dedup", plans)
        assert newest_matches(search, ["tick"]) == {"tick": current}
