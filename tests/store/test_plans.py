"""The hot statements use the indexes named after them, however many other rows there are."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from django.db import connection

from django_ayework import enqueue, enqueue_many
from django_ayework.models import Edge, Group, Waiter, Work, WorkerProcess
from django_ayework.rules.controls import FairnessKey, Scope
from django_ayework.rules.states import Status
from django_ayework.store import backlog, claims, deletion, dependencies, lanes, rows, transitions
from django_ayework.store.database import atomic, clock
from django_ayework.store.dependencies import (
    BlockedCursor,
    Outcomes,
    WaiterRow,
    Watch,
    blocked_after,
    insert_waiters,
    lock_waiters,
    read_waiters,
    record_outcomes,
    resolve_waiters,
    watchers_of,
)
from django_ayework.store.identity import Search, find_live_units, newest_matches
from django_ayework.store.lanes import (
    Lane,
    lanes_behind,
    lanes_of,
    pending_by_queue,
    poll,
    turns_of,
    works_ahead,
)
from django_ayework.store.locks import lock_lapsed, lock_overdue, renew
from django_ayework.store.rows import GroupRow, delete_emptied, find_row, insert_groups, lock_groups
from django_ayework.store.worker_processes import processes_seen_since
from django_ayework.testing.factories import GroupFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add
from tests.store.plans import (
    SHARE,
    analyse,
    assert_reads_in_order,
    assert_reads_through,
    entries_read,
    make_works,
    plans_of,
    scans_table,
)

RETAINED = 200_000 // SHARE
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
    "queued_at, run_at, sort_key, id, status, ended_at, dedup_key, dedup_type"
)
#: By statement: its index, the status of the works that it finds, and how it is run.
READERS = {
    "staging": ("ayework_due", "scheduled", lambda: transitions.make_pending(clock.now(), 100)),
    "expiring": ("ayework_blocked", "blocked", lambda: lock_overdue(clock.now(), 100)),
    "polling": ("ayework_blocked", "blocked", lambda: poll(clock.now())),
    "dead letters": ("ayework_dead", "dead", lambda: backlog.dead_letters(10)),
    "depth of dead": ("ayework_dead", "dead", lambda: backlog.dead_depths(10)),
    "depth of pending": ("ayework_lane", "pending", pending_by_queue),
}
SCOPES = {
    "all": None,
    "queues": Scope(queues=("default",)),
    "types": Scope(types=("shop.add",)),
    "exclude_types": Scope(exclude_types=("shop.pay",)),
}


@pytest.fixture(scope="module")
def crowded(django_db_setup, django_db_blocker):
    """Many finished works with one dedup key, as many far-future works with a key each, and dead works.

    Among no dead works at all, the indexes over dead works cost the same, and the planner may take either.
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
        for prefix, status, count, run_at, ended_at in (
            ("f", "success", RETAINED, now, now),
            ("s", "scheduled", RETAINED, now + timedelta(days=1), None),
            ("d", "dead", 2_000 // SHARE, now, now),
        ):
            name = f"CONCAT('{prefix}', n)" if connection.vendor == "mysql" else f"'{prefix}' || n"
            key = "'tick'" if ended_at else name
            cast = "CAST(%s AS timestamptz)" if connection.vendor == "postgresql" else "%s"
            cursor.execute(
                f"INSERT INTO django_ayework_work ({COLUMNS}) "
                f"SELECT 'shop.add', 'default', '', 0, '', '{{}}', '{{}}', '', 0, 0, 0, {cast}, {cast}, '', "
                f"{name}, '{status}', {cast}, {key}, 'shop.add' "
                f"FROM ({NUMBERS[connection.vendor]}) AS numbers WHERE n <= {count}",
                [moment(now), moment(run_at), moment(ended_at) if ended_at else None],
            )
    analyse("django_ayework_work")


@pytest.mark.django_db
@pytest.mark.usefixtures("crowded")
class TestPlans:
    def test_claiming_reads_pending_works_of_the_queue_in_order(self):
        make_works(20)
        plans = plans_of(lambda: claims.claim("default", {"shop.add": 5}, 5, "w", clock.now(), clock.now()))
        assert_reads_in_order("ayework_lane", plans)
        caps = dict.fromkeys(["shop.add", "shop.pay", "shop.pack"], 5)
        for type in caps:
            make_works(20, type=type)
        plans = plans_of(lambda: claims.claim("default", caps, 5, "w", clock.now(), clock.now()))
        assert_reads_through("ayework_lane", plans)

    def test_the_sweep_reads_each_page_of_blocked_works_in_order(self):
        soon = clock.now() + timedelta(days=1)
        make_works(200, status="blocked")
        make_works(200, status="blocked", deadline=soon)
        analyse("django_ayework_work")
        for place in (BlockedCursor(None, ""), BlockedCursor(None, "w"), BlockedCursor(soon, "w")):
            plans = plans_of(lambda place=place: blocked_after(place, 5))
            assert_reads_in_order("ayework_blocked", plans)

    @pytest.mark.parametrize(("index", "status", "act"), READERS.values(), ids=READERS)
    def test_a_reader_has_an_index(self, index, status, act):
        make_works(3, status=status)
        with atomic():
            assert_reads_through(index, plans_of(act))

    @pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
    def test_reclaiming_and_polling_read_lapsed_leases(self, scope):
        past = clock.now() - timedelta(minutes=1)
        make_works(3, status="running", worker="w", leased_until=past)
        types = ("shop.add",) if scope else ("shop.add", "shop.pay")
        given = (clock.now(), 100, ("x", "y"), types, past)
        with atomic():
            plans = plans_of(lambda: lock_lapsed(*given, scope) if scope else lock_lapsed(*given))
            assert_reads_through("ayework_lapsed", plans)
        if scope:
            assert_reads_through("ayework_lapsed", plans_of(lambda: poll(clock.now(), scope)))

    def test_renewing_reads_the_works_held(self):
        held = {work.id: 0 for work in make_works(40, status="running", worker="w")}
        plans = plans_of(lambda: renew(held, "w", clock.now()))
        assert not any(scans_table(plan) for plan in plans), plans

    def test_a_success_writes_the_works_held(self):
        works = make_works(40, status="running", worker="w")
        won = [transitions.Succeeded(work.id, 0, f'"{work.id}"') for work in works]
        [plan] = plans_of(lambda: transitions.succeed(won, "w", clock.now()))
        assert not scans_table(plan), plan

    @pytest.mark.vendors("mysql")
    @pytest.mark.parametrize(
        ("act", "bound"),
        [
            (lambda: poll(clock.now()), 20),
            (lambda: claims.claim("default", {"shop.add": 5}, 5, "w", clock.now(), clock.now()), 40),
            (lambda: list(deletion.types_ended("success")), 20),
        ],
        ids=["poll", "claim", "types that have ended"],
    )
    def test_a_statement_goes_through_few_entries(self, act, bound):
        make_works(400 if bound == 40 else 20)
        assert entries_read(act) < bound

    @pytest.mark.parametrize("find", [lambda: lanes_behind("", 50), lambda: lanes_of(["mail", "fax"])])
    def test_lanes_are_found_in_their_index(self, find):
        for queue, type in product(("default", "fax", "mail"), ("shop.add", "shop.pay")):
            make_works(20, queue=queue, type=type)
        plans = plans_of(find)
        assert not any(scans_table(plan) for plan in plans), plans
        if connection.vendor != "mysql":
            assert_reads_through("ayework_lane", plans)
            assert len(plans) == 1
        assert set(find()) >= {Lane("mail", "shop.add"), Lane("fax", "shop.pay")}

    @pytest.mark.vendors("mysql")
    def test_lanes_are_found_by_a_bounded_number_of_entries_however_many_works_they_have(self):
        for queue, type in product(("fax", "mail"), ("shop.add", "shop.pay")):
            make_works(400, queue=queue, type=type)
        assert entries_read(lambda: lanes_of(["mail"])) < 50
        assert entries_read(lambda: lanes_behind("", 1)) < 4 * lanes.ENTRIES

    @pytest.mark.vendors("postgresql")
    def test_lanes_are_found_by_an_entry_each_however_many_works_they_have(self):
        """The server counts what a scan of an index returned."""
        for queue, type in product(("fax", "mail"), ("shop.add", "shop.pay")):
            make_works(400, queue=queue, type=type)
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
        make_works(60)
        requests = [add(a=1, b=n) for n in range(number)]
        plans = plans_of(lambda: enqueue_many(requests, fairness=label))
        assert_finds_turns(plans)
        if connection.vendor == "mysql":
            assert entries_read(lambda: enqueue(add(a=1, b=2), fairness=label)) < 20
        last = Work.objects.filter(fairness="flood").latest("sort_key").sort_key
        assert (last > "1767225600009999") is (label == "flood")

    def test_works_of_many_labels_find_their_turns_by_an_entry_of_two_indexes_each(self):
        let_thousands_wait("flood")
        make_works(60)
        labels = ("flood", "another", "third")
        places = {label: FairnessKey("default", "shop.add", 0, label) for label in labels}
        assert_finds_turns(plans_of(lambda: turns_of(places, clock.now())))
        if connection.vendor == "mysql":
            assert entries_read(lambda: turns_of(places, clock.now())) < 40
        turns = ("1767225600010000", "1767225600001000", "1767225600001000")
        assert turns_of(places, clock.now()) == dict(zip(labels, turns, strict=True))

    def test_pruning_one_type_reads_ended_works_of_that_type_alone(self):
        before = clock.now() + timedelta(minutes=1)
        for count, ended_at in ((20, clock.now()), (200, before + timedelta(hours=1))):
            make_works(count, type="shop.tick", status="success", ended_at=ended_at)
        plans = plans_of(lambda: deletion.delete_ended("success", "shop.tick", before, 100))
        assert_reads_in_order("ayework_ended", plans[:1])
        assert Work.objects.filter(type="shop.tick").count() == 200

    def test_the_types_that_have_ended_are_found_by_an_entry_each(self):
        WorkFactory(type="shop.tick", status="success", ended_at=clock.now())
        plans = plans_of(lambda: list(deletion.types_ended("success")))
        assert len(plans) == 3
        assert_reads_in_order("ayework_ended", plans)
        assert [type for type, _ in deletion.types_ended("success")] == ["shop.add", "shop.tick"]

    def test_the_far_future_is_left_alone(self):
        assert transitions.make_pending(clock.now(), 100) == []
        assert Work.objects.filter(status="pending").count() == 0
        index = "ayework_lane" if connection.vendor == "mysql" else "ayework_due"
        assert_reads_through(index, plans_of(lambda: backlog.depths_at(Status.SCHEDULED, 100)))

    def test_the_overview_reads_works_through_indexes(self):
        make_works(30, type="shop.tick")
        WorkFactory(status="running", leased_until=clock.now())
        long_ago = clock.now() - timedelta(days=400)
        for index, act in {
            "ayework_lane": lambda: backlog.pending_depths([Lane("default", "shop.tick")], 10),
            "ayework_due": lambda: backlog.overdue_depths(clock.now(), 10),
            "ayework_dead": lambda: backlog.died_since(long_ago, long_ago, 10),
            "ayework_queued": lambda: backlog.queued_since(long_ago, 10),
            "ayework_ended": lambda: backlog.running_times(["shop.add", "shop.tick"], 10),
        }.items():
            assert_reads_through(index, plans_of(act))
        assert_reads_through("ayework_due", plans_of(lambda: backlog.parked_types(clock.now(), 10)))
        counts = plans_of(lambda: backlog.ended_depths("success", ["shop.add", "shop.tick"], 10))
        assert_reads_through("ayework_ended", counts)
        for status in backlog.IN_ORDER:
            assert not any(map(scans_table, plans_of(lambda status=status: backlog.depths_at(status, 10))))

    def test_the_overview_reads_so_many_entries_of_each_lane(self):
        make_works(30, type="shop.tick")
        [depth] = backlog.pending_depths([Lane("default", "shop.tick")], 10)
        assert depth.works == 10
        if connection.vendor == "mysql":
            lanes = [Lane("default", "shop.tick")]
            assert entries_read(lambda: backlog.pending_depths(lanes, 10)) < 60

    def test_works_ahead_are_the_beginning_of_their_lane(self):
        last = make_works(20)[-1]
        row = find_row(last.id)
        plans = plans_of(lambda: works_ahead(row, ["shop.add"], 1000))
        assert_reads_in_order("ayework_lane", plans)
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
        make_works(40, status="success", unit="order-7", ended_at=now)
        current = WorkFactory(unit="order-7").id
        pairs = [("shop.add", "order-7")]
        assert_reads_through("ayework_unit", plans_of(lambda: find_live_units(pairs)))
        assert [row.id for row in find_live_units(pairs).values()] == [current]

    @pytest.mark.parametrize("chains", [1, 100])
    def test_deleting_reads_the_works_of_the_chains_alone(self, chains):
        ids = [f"f{number}" for number in range(1, chains + 1)]
        later = [WorkFactory(chain_id=id, chain_index=1).id for id in ids]
        assert_reads_through("ayework_chain", plans_of(lambda: deletion.steps_among(ids)))
        with atomic():
            plans = plans_of(lambda: deletion.lock_steps([*ids, *later]))
        plans += plans_of(lambda: deletion.erase([*ids, *later]))
        assert not any(map(scans_table, plans)), plans

    def test_a_page_of_a_chain_reads_its_steps_alone_in_order(self):
        for number in range(1, 50):
            WorkFactory(chain_id="f1", chain_index=number)
        [plan] = plans_of(lambda: rows.steps_from("f1", 10, 5))
        assert_reads_in_order("ayework_chain", [plan])

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
        assert_reads_in_order(index, plans)


@pytest.fixture(scope="module")
def stopped_workers(django_db_setup, django_db_blocker):
    """A table with many workers that have stopped; emptied afterwards."""
    now = clock.now()
    common = {"host": "h", "pid": 1, "concurrency": 8, "started_at": now, "seen_at": now, "stopped_at": now}
    with django_db_blocker.unblock():
        WorkerProcess.objects.bulk_create(WorkerProcess(id=f"w{n}", **common) for n in range(5_000 // SHARE))
        analyse("django_ayework_workerprocess")
        yield
        WorkerProcess.objects.all().delete()


@pytest.mark.django_db
@pytest.mark.usefixtures("stopped_workers")
def test_finding_workers_reads_those_that_have_not_stopped():
    WorkerProcessFactory.create_batch(3)
    found, since = [], clock.now() - timedelta(minutes=1)
    plans = plans_of(lambda: found.extend(processes_seen_since(since)), "django_ayework_workerprocess")
    assert any("ayework_workers" in plan for plan in plans), plans
    assert len(found) == 3


GATES, EACH = 20_000 // SHARE, 2
WAITERS, EDGES, GROUPS = (model._meta.db_table for model in (Waiter, Edge, Group))
OUTCOMES = Outcomes({f"w{gate}-{place}": Status.SUCCESS for gate in (3, 4) for place in range(EACH)}, {})


def of_gates(test):
    """Run a test beside many gates."""
    return pytest.mark.django_db(pytest.mark.usefixtures("gates")(test))


@pytest.fixture(scope="module")
def gates(django_db_setup, django_db_blocker):
    """Gates that watch two works each, and as many groups; deleted afterwards."""
    names = [f"gate{number}" for number in range(GATES)]
    watched = {name: [Watch(f"w{name[4:]}-{place}") for place in range(EACH)] for name in names}
    with django_db_blocker.unblock():
        insert_waiters(
            [WaiterRow(name, '"all-success"', "dead", EACH, 0, 0, False) for name in names], watched
        )
        insert_groups(GroupRow(name) for name in names)
        for table in (WAITERS, EDGES, GROUPS):
            analyse(table)
        yield
        for model in (Edge, Waiter, Group):
            model.objects.all().delete()


def assert_scans_nothing(plans: dict[str, list[str]]) -> None:
    for table, some in plans.items():
        assert not any(scans_table(plan, table) for plan in some), some


@of_gates
def test_watchers_are_found_by_the_watched_works_and_locked_by_their_keys():
    edges = plans_of(lambda: watchers_of(OUTCOMES.ids), EDGES)
    assert_scans_nothing({EDGES: edges, WAITERS: plans_of(lambda: lock_waiters(["gate7"]), WAITERS)})
    assert any("ayework_watchers" in plan for plan in edges), edges
    groups = plans_of(lambda: lock_groups(["gate7"]), GROUPS)
    assert_scans_nothing({GROUPS: groups})


@of_gates
def test_outcomes_are_recorded_through_the_watched_works():
    for table, gate in ((EDGES, "gate3"), (WAITERS, "gate4")):
        plans = plans_of(lambda gate=gate: record_outcomes(read_waiters([gate]), OUTCOMES), table)
        assert_scans_nothing({table: plans, "edge": plans})
        assert table == WAITERS or all(map(reads_few_edges, plans)), plans


@of_gates
@pytest.mark.parametrize("keeps_plans", [True, False])
def test_waiters_are_resolved_through_the_watched_works(keeps_plans, monkeypatch):
    monkeypatch.setattr(dependencies, "keeps_plans", lambda database: keeps_plans)
    for table in (EDGES, WAITERS):
        plans = plans_of(lambda: resolve_waiters(set(), OUTCOMES), table)
        assert_scans_nothing({table: plans})
        assert table == WAITERS or all(map(reads_few_edges, plans)), plans


def reads_few_edges(plan: str) -> bool:
    """Whether edges are read by the watched works, or one by one, never all of a waiter's."""
    by_key = "PRIMARY" in plan or "django_ayework_edge_pkey" in plan
    return ("ayework_watchers" in plan or by_key) and "ayework_watched" not in plan
