"""The hot statements use the indexes named after them, however many other rows there are."""

import re
from datetime import timedelta
from functools import partial
from itertools import product

import pytest
from django.db import connection

from django_ayework import enqueue, enqueue_many
from django_ayework.models import Work, WorkerProcess
from django_ayework.rules.controls import Place as TurnPlace
from django_ayework.rules.controls import Scope
from django_ayework.store import claims, deletion, lanes, transitions
from django_ayework.store.clock import clock
from django_ayework.store.database import atomic
from django_ayework.store.deletion import erase, lock_steps, steps_among
from django_ayework.store.fairness import turns_of
from django_ayework.store.groups import delete_emptied, steps_from
from django_ayework.store.identity import Search, find_live_units, newest_matches
from django_ayework.store.lanes import (
    Lane,
    dead_letters,
    depths_of,
    lanes_behind,
    lanes_of,
    poll,
    processes_seen_since,
    scheduled_depths,
    works_ahead,
)
from django_ayework.store.locks import lock_lapsed, lock_overdue, renew
from django_ayework.store.resolution import Place, blocked_after
from django_ayework.store.rows import find_row
from django_ayework.testing.factories import GroupFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add
from tests.store.plans import analyse, assert_reads_through, entries_read, plans_of, scans_table

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
    "sort_key, id, status, ended_at, dedup_key, dedup_type"
)


#: What leads to all live works of a status.
INDEX_OF_LIVE = [
    ("pending", "ayework_lane"),
    ("running", "ayework_lapsed" if connection.features.supports_partial_indexes else "ayework_lane"),
    ("blocked", "ayework_blocked"),
]


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
                f"SELECT 'shop.add', 'default', '', 0, '', '{{}}', '{{}}', '', 0, 0, 0, {cast}, {cast}, '', "
                f"{name}, '{status}', {cast}, {key}, 'shop.add' "
                f"FROM ({NUMBERS[connection.vendor]}) AS numbers",
                [moment(now), moment(run_at), moment(ended_at) if ended_at else None],
            )
    analyse("django_ayework_work")


@pytest.mark.django_db
@pytest.mark.usefixtures("crowded")
class TestPlans:
    def test_claiming_reads_pending_works_of_the_queue_in_order(self):
        WorkFactory.create_batch(20)
        plans = plans_of(lambda: claims.claim("default", {"shop.add": 5}, 5, "w", clock.now(), clock.now()))
        assert_reads_through("ayework_lane", plans)
        assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans), plans

    def test_claiming_of_several_types_reads_the_beginnings_of_their_lanes(self):
        for type in ("shop.add", "shop.pay", "shop.pack"):
            WorkFactory.create_batch(20, type=type)
        caps = {"shop.add": 5, "shop.pay": 5, "shop.pack": 5}
        plans = plans_of(lambda: claims.claim("default", caps, 5, "w", clock.now(), clock.now()))
        assert_reads_through("ayework_lane", plans)

    def test_the_sweep_reads_each_page_of_blocked_works_in_order(self):
        soon = clock.now() + timedelta(days=1)
        WorkFactory.create_batch(200, status="blocked")
        WorkFactory.create_batch(200, status="blocked", deadline=soon)
        analyse("django_ayework_work")
        for place in (Place(None, ""), Place(None, "w"), Place(soon, "w")):
            plans = plans_of(lambda place=place: blocked_after(place, 5))
            assert_reads_through("ayework_blocked", plans)
            sorts = [plan for plan in plans if re.search("filesort|Sort|TEMP B-TREE", plan)]
            assert not sorts

    def test_staging_reads_due_works(self):
        WorkFactory.create_batch(3, status="scheduled")
        assert_reads_through("ayework_due", plans_of(lambda: transitions.stage(clock.now(), 100)))

    def test_reclaiming_reads_lapsed_leases(self):
        past = clock.now() - timedelta(minutes=1)
        WorkFactory.create_batch(3, status="running", worker="w", leased_until=past)
        with atomic():
            plans = plans_of(
                lambda: lock_lapsed(clock.now(), 100, ("x", "y"), ("shop.add", "shop.pay"), past)
            )
            assert_reads_through("ayework_lapsed", plans)

    @pytest.mark.parametrize(
        "scope",
        [Scope(queues=("default",)), Scope(types=("shop.add",)), Scope(exclude_types=("shop.pay",))],
        ids=["queues", "types", "exclude_types"],
    )
    def test_what_a_worker_serves_is_taken_back_through_lapsed_leases(self, scope):
        past = clock.now() - timedelta(minutes=1)
        WorkFactory.create_batch(3, status="running", worker="w", leased_until=past)
        with atomic():
            plans = plans_of(lambda: lock_lapsed(clock.now(), 100, ("x",), ("shop.add",), past, scope))
            assert_reads_through("ayework_lapsed", plans)
        plans = plans_of(lambda: poll(clock.now(), scope))
        assert_reads_through("ayework_lapsed", plans)

    def test_renewing_reads_the_works_held(self):
        held = {work.id: 0 for work in WorkFactory.create_batch(40, status="running", worker="w")}
        plans = plans_of(lambda: renew(held, "w", clock.now()))
        assert not any(scans_table(plan) for plan in plans), plans
        assert connection.vendor != "postgresql" or len(plans) == 1

    def test_a_success_writes_the_works_held(self):
        works = WorkFactory.create_batch(40, status="running", worker="w")
        won = [transitions.Won(work.id, 0, f'"{work.id}"') for work in works]
        [plan] = plans_of(lambda: transitions.succeed(won, "w", clock.now()))
        assert not scans_table(plan), plan

    def test_expiring_gates_reads_overdue_ones(self):
        with atomic():
            plans = plans_of(lambda: lock_overdue(clock.now(), 100))
            assert_reads_through("ayework_blocked", plans)

    def test_an_idle_look_reads_indexes_only(self):
        plans = plans_of(lambda: poll(clock.now()))
        assert_reads_through("ayework_blocked", plans)

    @pytest.mark.vendors("mysql")
    def test_an_idle_look_goes_through_a_few_entries(self):
        WorkFactory.create_batch(20)
        assert entries_read(lambda: poll(clock.now())) < 20

    @pytest.mark.vendors("mysql")
    def test_a_claim_goes_through_the_entries_of_what_it_takes(self):
        WorkFactory.create_batch(400)
        claim = partial(claims.claim, "default", {"shop.add": 5}, 5, "w", clock.now(), clock.now())
        assert entries_read(claim) < 40

    @pytest.mark.parametrize("find", [lambda: lanes_behind("", 50), lambda: lanes_of(["mail", "fax"])])
    def test_lanes_are_found_in_their_index(self, find):
        for queue, type in product(("default", "fax", "mail"), ("shop.add", "shop.pay")):
            WorkFactory.create_batch(20, queue=queue, type=type)
        plans = plans_of(find)
        assert not any(scans_table(plan) for plan in plans), plans
        if connection.vendor != "mysql":
            assert_reads_through("ayework_lane", plans)
            assert len(plans) == 1
        assert set(find()) >= {Lane("mail", "shop.add"), Lane("fax", "shop.pay")}

    @pytest.mark.vendors("mysql")
    def test_lanes_are_found_by_a_bounded_number_of_entries_however_many_works_they_have(self):
        for queue, type in product(("fax", "mail"), ("shop.add", "shop.pay")):
            WorkFactory.create_batch(400, queue=queue, type=type)
        assert entries_read(lambda: lanes_of(["mail"])) < 50
        assert entries_read(lambda: lanes_behind("", 1)) < 4 * lanes.ENTRIES

    @pytest.mark.vendors("postgresql")
    def test_lanes_are_found_by_an_entry_each_however_many_works_they_have(self):
        """The server counts what a scan of an index returned."""
        for queue, type in product(("fax", "mail"), ("shop.add", "shop.pay")):
            WorkFactory.create_batch(400, queue=queue, type=type)
        analyse("django_ayework_work")
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {lanes.LANES_BEHIND}", ("", 50))
            plan = [line for (line,) in cursor.fetchall()]
        scans = [line for line in plan if "Scan using ayework_lane" in line]
        assert scans and all("rows=1 loops" in line or "rows=0 loops" in line for line in scans), plan

    @pytest.mark.parametrize("label", ["flood", "another"])
    @pytest.mark.parametrize("number", [1, 9])
    def test_a_new_work_finds_its_turn_by_an_entry_of_two_indexes_however_many_wait(self, label, number):
        let_thousands_wait("flood")
        WorkFactory.create_batch(60)
        requests = [add(a=1, b=n) for n in range(number)]
        plans = plans_of(lambda: enqueue_many(requests, fairness=label))
        assert_finds_turns(plans)
        if connection.vendor == "mysql":
            assert entries_read(lambda: enqueue(add(a=1, b=2), fairness=label)) < 20
        last = Work.objects.filter(fairness="flood").latest("sort_key").sort_key
        assert (last > "1767225600009999") is (label == "flood")

    def test_works_of_many_labels_find_their_turns_by_an_entry_of_two_indexes_each(self):
        let_thousands_wait("flood")
        WorkFactory.create_batch(60)
        places = [TurnPlace("default", "shop.add", 0, label) for label in ("flood", "another", "third")]
        assert_finds_turns(plans_of(lambda: turns_of(places, clock.now())))
        if connection.vendor == "mysql":
            assert entries_read(lambda: turns_of(places, clock.now())) < 40
        assert turns_of(places, clock.now()) == ["1767225600010000", *["1767225600001000"] * 2]

    def test_pruning_one_type_reads_ended_works_of_that_type_alone(self):
        before = clock.now() + timedelta(minutes=1)
        for count, ended_at in ((20, clock.now()), (200, before + timedelta(hours=1))):
            WorkFactory.create_batch(count, type="shop.tick", status="success", ended_at=ended_at)
        plans = plans_of(lambda: deletion.delete_ended("success", "shop.tick", before, 100))
        assert_reads_through("ayework_ended", plans[:1])
        assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans[:1]), (
            plans
        )
        assert Work.objects.filter(type="shop.tick").count() == 200

    def test_the_types_that_have_ended_are_found_by_an_entry_each(self):
        WorkFactory(type="shop.tick", status="success", ended_at=clock.now())
        plans = plans_of(lambda: list(deletion.types_ended("success")))
        assert len(plans) == 3
        assert_reads_through("ayework_ended", plans)
        assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans), plans
        assert [type for type, _ in deletion.types_ended("success")] == ["shop.add", "shop.tick"]

    @pytest.mark.vendors("mysql")
    def test_the_types_that_have_ended_are_found_however_many_works_they_have(self):
        assert entries_read(lambda: list(deletion.types_ended("success"))) < 20

    def test_the_far_future_is_left_alone(self):
        assert transitions.stage(clock.now(), 100) == 0
        assert Work.objects.filter(status="pending").count() == 0

    @pytest.mark.parametrize(("status", "index"), INDEX_OF_LIVE)
    def test_counting_live_works_reads_those_alone(self, status, index):
        WorkFactory.create_batch(3, status=status)
        assert_reads_through(index, plans_of(lambda: depths_of(status)))

    def test_counting_scheduled_works_reads_the_first_of_them(self):
        plans = plans_of(lambda: scheduled_depths(100))
        assert_reads_through("ayework_due", plans)
        assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans), plans

    def test_listing_dead_letters_reads_those_alone(self):
        WorkFactory.create_batch(3, status="dead")
        assert_reads_through("ayework_dead", plans_of(lambda: dead_letters(10)))

    def test_works_ahead_are_the_beginning_of_their_lane(self):
        last = WorkFactory.create_batch(20)[-1]
        row = find_row(last.id)
        plans = plans_of(lambda: works_ahead(row, ["shop.add"], 1000))
        assert_reads_through("ayework_lane", plans)
        assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans), plans
        assert works_ahead(row, ["shop.add"], 1000) == 19

    @pytest.mark.parametrize("keys", [["s7"], [f"s{number}" for number in range(1, 100)]])
    @pytest.mark.parametrize("scope", ["incomplete", "any"])
    def test_looking_for_a_dedup_key_reads_the_works_of_that_key_alone(self, keys, scope):
        since = clock.now() - timedelta(days=1)
        search = Search("shop.add", scope, since, ("s8",))
        assert_reads_through("ayework_key", plans_of(lambda: newest_matches(search, keys)))

    def test_looking_for_a_key_that_recurs_passes_over_all_that_have_ended(self):
        current = WorkFactory(dedup_key="tick").id
        search = Search("shop.add", "incomplete", None, ())
        plans = plans_of(lambda: newest_matches(search, ["tick"]))
        assert_reads_through("ayework_key", plans)
        assert newest_matches(search, ["tick"]) == {"tick": current}

    def test_looking_for_a_unit_passes_over_all_works_of_it_that_have_ended(self):
        now = clock.now()
        WorkFactory.create_batch(40, status="success", unit="order-7", ended_at=now)
        current = WorkFactory(unit="order-7").id
        pairs = [("shop.add", "order-7")]
        assert_reads_through("ayework_unit", plans_of(lambda: find_live_units(pairs)))
        assert [row.id for row in find_live_units(pairs).values()] == [current]

    @pytest.mark.parametrize("chains", [1, 100])
    def test_deleting_reads_the_works_of_the_chains_alone(self, chains):
        ids = [f"f{number}" for number in range(1, chains + 1)]
        later = [WorkFactory(chain_id=id, chain_index=1).id for id in ids]
        assert_reads_through("ayework_chain", plans_of(lambda: steps_among(ids)))
        with atomic():
            plans = plans_of(lambda: lock_steps([*ids, *later]))
        plans += plans_of(lambda: erase([*ids, *later]))
        assert not any(map(scans_table, plans)), plans

    def test_a_page_of_a_chain_reads_its_steps_alone_in_order(self):
        for number in range(1, 50):
            WorkFactory(chain_id="f1", chain_index=number)
        [plan] = plans_of(lambda: steps_from("f1", 10, 5))
        assert_reads_through("ayework_chain", [plan])
        assert not any(word in plan for word in ("filesort", "Sort", "TEMP B-TREE")), plan

    def test_finding_a_group_empty_reads_its_works_alone(self):
        ids = [GroupFactory().id for _ in range(3)]
        WorkFactory(group_id=ids[0])
        assert_reads_through("ayework_group", plans_of(lambda: delete_emptied(ids)))


def let_thousands_wait(label: str) -> None:
    """Make 9 000 of the far-future works wait, with the turns from 1767225600001000 on."""
    digits = "SUBSTR(id, 2)"
    key = (
        f"CONCAT('176722560000', {digits})" if connection.vendor == "mysql" else f"'176722560000' || {digits}"
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE django_ayework_work SET status = 'pending', fairness = %s, sort_key = {key} "
            "WHERE id LIKE 's____'",
            [label],
        )
    if connection.vendor != "mysql":  # where that would commit
        analyse("django_ayework_work")


def assert_finds_turns(plans: list[str]) -> None:
    if connection.vendor == "mysql":  # whose plans tell less: the callers count the entries that it reads
        return
    for index in ("ayework_turn", "ayework_lane"):
        assert_reads_through(index, plans)
    assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans), plans


@pytest.fixture(scope="module")
def retired(django_db_setup, django_db_blocker):
    """A table with 5 000 workers that have stopped; emptied afterwards."""
    now = clock.now()
    common = {"host": "h", "pid": 1, "concurrency": 8, "started_at": now, "seen_at": now, "stopped_at": now}
    with django_db_blocker.unblock():
        WorkerProcess.objects.bulk_create(WorkerProcess(id=f"w{n}", **common) for n in range(5_000))
        analyse("django_ayework_workerprocess")
        yield
        WorkerProcess.objects.all().delete()


@pytest.mark.django_db
@pytest.mark.usefixtures("retired")
def test_finding_workers_reads_those_that_have_not_stopped():
    """Processes that are replaced often leave thousands of rows a day."""
    WorkerProcessFactory.create_batch(3)
    found = []
    since = clock.now() - timedelta(minutes=1)
    plans = plans_of(lambda: found.extend(processes_seen_since(since)), "django_ayework_workerprocess")
    assert any("ayework_workers" in plan for plan in plans), plans
    assert len(found) == 3
