"""The hot statements use the indexes named after them, however many other rows there are."""

import re
from datetime import timedelta
from functools import partial
from itertools import product

import pytest
from django.db import connection

from django_ayework import enqueue, enqueue_many
from django_ayework.models import Edge, Group, Waiter, Work, WorkerProcess
from django_ayework.rules.controls import FairnessKey, Scope
from django_ayework.rules.states import RETRYABLE, Status
from django_ayework.store import backlog, claims, deletion, dependencies, lanes, rows, transitions
from django_ayework.store import causes as store_causes
from django_ayework.store.database import atomic, clock, fetch
from django_ayework.store.dependencies import Outcomes, WaiterRow, Watch
from django_ayework.store.entries import Search, find_live_units, newest_matches
from django_ayework.store.lanes import Lane, lanes_behind, lanes_of, poll, turns_of
from django_ayework.store.leases import lapsed_ids, lock_lapsed, renew
from django_ayework.store.processes import processes_seen_since
from django_ayework.store.selection import Cursor, selection_of
from django_ayework.testing.factories import GroupFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add
from tests.marks import on_servers
from tests.store.plans import (
    SHARE,
    analyse,
    assert_finds_turns,
    assert_reads_in_order,
    assert_reads_through,
    assert_scans_nothing,
    entries_read,
    make_works,
    plans_of,
)

#: The turns that are looked at need 10 000 works.
RETAINED = max(60_000 // SHARE, 10_000)
#: A table of numbers, by vendor.
NUMBERS = {
    "postgresql": f"SELECT g AS n FROM generate_series(1, {RETAINED}) AS g",
    "mysql": f"SELECT n FROM JSON_TABLE('{[*range(RETAINED + 1)]}', '$[*]' COLUMNS (n INT PATH '$')) AS g",
    "sqlite": (
        "WITH RECURSIVE g(n) AS "
        f"(SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < {RETAINED}) SELECT n FROM g"
    ),
}
COLUMNS = (
    "type, queue, reason, priority, fairness, input, options, error, attempt, delivery, chain_index, "
    "queued_at, run_at, sort_key, id, status, ended_at, dedup_key, dedup_type"
)
TYPES, TICKS = ["shop.add", "shop.tick"], [Lane("default", "shop.tick")]
#: By statement: its index, the status of the works that it finds, and how it is run.
READERS = {
    "staging": ("ayework_due", "scheduled", lambda now: transitions.make_pending(now, 100)),
    "expiring": ("ayework_blocked", "blocked", lambda now: rows.overdue_ids(now, 100)),
    "polling": ("ayework_blocked", "blocked", poll),
    "dead letters": ("ayework_dead", "dead", lambda now: backlog.dead_letters(10)),
    "depth of dead": ("ayework_dead", "dead", lambda now: backlog.dead_depths(10)),
    "depth of pending": ("ayework_lane", "pending", lambda now: lanes.pending_by_queue()),
    "depth of lanes": ("ayework_lane", "pending", lambda now: backlog.pending_depths(TICKS, 10)),
    "depth of overdue": ("ayework_due", "pending", lambda now: backlog.overdue_depths(now, 10)),
    "depth of ended": ("ayework_ended", "pending", lambda now: backlog.ended_depths("success", TYPES, 10)),
    "died": ("ayework_dead", "pending", lambda now: backlog.died_since(long_ago(), long_ago(), 10)),
    "queued": ("ayework_queued", "pending", lambda now: backlog.queued_since(long_ago(), 10)),
    "running times": ("ayework_ended", "pending", lambda now: backlog.running_times(TYPES, 10)),
    "parked": ("ayework_due", "pending", lambda now: backlog.parked_types(now, 10)),
}
SCOPES = {
    "all": None,
    "queues": Scope(queues=("default",)),
    "types": Scope(types=("shop.add",)),
    "exclude_types": Scope(exclude_types=("shop.pay",)),
}


def long_ago():
    return clock.now() - timedelta(days=400)


@pytest.fixture(scope="class")
def many_dead(django_db_setup, django_db_blocker):
    """Two thousand works that died of twenty causes, among as many that have succeeded.

    MySQL and MariaDB commit when a table is analysed.
    """
    like, now = WorkFactory.build(), clock.now()
    common = {column: getattr(like, column) for column in ("type", "queue", "input", "options")}
    with django_db_blocker.unblock():
        for number, status, reason in ((0, "dead", "exhausted"), (1, "success", "")):
            Work.objects.bulk_create(
                Work(
                    **{"id": f"{n:04}", "status": status, "reason": reason, **common},
                    cause=f"{n // 2 % 20:016}" if reason else "",
                    **dict.fromkeys(["queued_at", "run_at", "ended_at"], now - timedelta(seconds=n)),
                )
                for n in range(number, 4000, 2)
            )
        analyse("django_ayework_work")
        yield
        Work.objects.all().delete()


@pytest.mark.django_db
@pytest.mark.usefixtures("many_dead")
class TestAmongManyDead:
    def test_causes_are_found_by_their_index(self):
        plans = plans_of(store_causes.causes)
        assert any("ayework_cause" in plan for plan in plans), plans
        found, are_more = store_causes.causes()
        expected = [(100, f"{n:016}") for n in range(20)]
        assert ([(cause.works, cause.cause) for cause in found], are_more) == (expected, False)

    @pytest.mark.vendors("mysql")
    def test_keys_of_causes_are_skipped_to(self):
        assert entries_read(lambda: fetch(store_causes.KEYS_BY_GROUPS, (201,))) < 100

    @pytest.mark.parametrize(
        ("filter", "statuses", "index"),
        [
            ({"type": "shop.add", "reason": "exhausted", "cause": "0" * 16}, RETRYABLE, "ayework_cause"),
            ({"status": "dead"}, RETRYABLE, "ayework_dead"),
            *(({"status": "dead", name: "gone"}, RETRYABLE, "ayework_") for name in ("queue", "worker")),
            pytest.param({"queue": "gone"}, frozenset(Status), "ayework_queued", marks=on_servers),
            *(({f"{name}_id": "few"}, RETRYABLE, f"ayework_{name}") for name in ("group", "chain")),
        ],
    )
    def test_a_page_is_read_along_an_index(self, filter, statuses, index):
        chosen = selection_of(filter, statuses, clock.now())
        after = Cursor(clock.now() - timedelta(seconds=3000), "")
        assert_reads_through(index, plans_of(lambda: chosen.page(after, 25)))


@pytest.fixture(scope="class")
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
                f"FROM ({NUMBERS[connection.vendor]}) AS numbers WHERE n BETWEEN 1 AND {count}",
                [moment(now), moment(run_at), moment(ended_at) if ended_at else None],
            )
    analyse("django_ayework_work")


def claim(*types: str):
    return claims.claim("default", dict.fromkeys(types, 5), 5, claims.new_lease("w"))


@pytest.mark.django_db
@pytest.mark.usefixtures("crowded")
class TestPlans:
    def test_claiming_reads_pending_works_of_the_queue_in_order(self):
        make_works(20)
        assert_reads_in_order("ayework_lane", plans_of(lambda: claim("shop.add")))
        types = ["shop.add", "shop.pay", "shop.pack"]
        for type in types:
            make_works(20, type=type)
        assert_reads_through("ayework_lane", plans_of(lambda: claim(*types)))

    def test_the_sweep_reads_each_page_of_blocked_works_in_order(self):
        soon = clock.now() + timedelta(days=1)
        make_works(200, status="blocked")
        make_works(200, status="blocked", deadline=soon)
        analyse("django_ayework_work")
        for given in ((None, ""), (None, "w"), (soon, "w")):
            place = dependencies.BlockedCursor(*given)
            plans = plans_of(lambda place=place: dependencies.blocked_after(place, 5))
            assert_reads_in_order("ayework_blocked", plans)

    @pytest.mark.parametrize(("index", "status", "act"), READERS.values(), ids=READERS)
    def test_a_reader_has_an_index(self, index, status, act):
        make_works(30, status=status, type="shop.tick")
        WorkFactory(status="running", leased_until=clock.now())
        with atomic():
            assert_reads_through(index, plans_of(lambda: act(clock.now())))

    def test_the_depth_of_a_status_is_read_through_an_index(self):
        index = "ayework_lane" if connection.vendor == "mysql" else "ayework_due"
        assert_reads_through(index, plans_of(lambda: backlog.depths_at(Status.SCHEDULED, 100)))
        make_works(30, type="shop.tick")
        for status in backlog.IN_ORDER:
            assert_scans_nothing(plans_of(lambda status=status: backlog.depths_at(status, 10)))

    @pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
    def test_reclaiming_and_polling_read_lapsed_leases(self, scope):
        past = clock.now() - timedelta(minutes=1)
        make_works(3, status="running", worker="w", leased_until=past)
        types = ("shop.add",) if scope else ("shop.add", "shop.pay")
        given = (clock.now(), 100, ("x", "y"), types, past, *([scope] if scope else []))
        with atomic():
            assert_reads_through("ayework_lapsed", plans_of(lambda: lapsed_ids(*given)))
        if scope:
            assert_reads_through("ayework_lapsed", plans_of(lambda: poll(clock.now(), scope)))

    def test_works_that_are_lapsed_or_overdue_are_locked_by_their_ids(self):
        held = make_works(40, status="running", worker="w", leased_until=long_ago())
        blocked = make_works(40, status="blocked", deadline=long_ago())
        with atomic():
            assert_scans_nothing(plans_of(lambda: lock_lapsed([work.id for work in held], clock.now())))
            assert_scans_nothing(plans_of(lambda: rows.lock_overdue([w.id for w in blocked], clock.now())))

    def test_renewing_succeeding_and_beginning_read_the_works_held(self):
        works = make_works(40, status="running", worker="w")
        assert_scans_nothing(plans_of(lambda: renew({work.id: 0 for work in works}, "w", 30.0)))
        assert_scans_nothing(plans_of(lambda: transitions.begin({work.id: 0 for work in works}, "w")))
        won = [transitions.Succeeded(work.id, 0, f'"{work.id}"') for work in works]
        assert_scans_nothing(plans_of(lambda: transitions.succeed(won, "w", clock.now())))

    @pytest.mark.vendors("mysql")
    @pytest.mark.parametrize(
        ("act", "works", "bound"),
        [
            (lambda: poll(clock.now()), 20, 20),
            (lambda: claim("shop.add"), 400, 40),
            (lambda: list(deletion.types_ended("success")), 20, 20),
            (lambda: backlog.pending_depths([Lane("default", "shop.add")], 10), 30, 60),
        ],
        ids=["poll", "claim", "types that have ended", "depth of a lane"],
    )
    def test_a_statement_goes_through_few_entries(self, act, works, bound):
        make_works(works)
        assert entries_read(act) < bound

    @pytest.mark.parametrize("find", [lambda: lanes_behind("", 50), lambda: lanes_of(["mail", "fax"])])
    def test_lanes_are_found_in_their_index(self, find):
        for queue, type in product(("default", "fax", "mail"), ("shop.add", "shop.pay")):
            make_works(20, queue=queue, type=type)
        plans = plans_of(find)
        assert_scans_nothing(plans)
        if connection.vendor != "mysql":
            assert_reads_through("ayework_lane", plans)
            assert len(plans) == 1
        assert set(find()) >= {Lane("mail", "shop.add"), Lane("fax", "shop.pay")}

    @on_servers
    def test_lanes_are_found_by_a_bounded_number_of_entries_however_many_works_they_have(self):
        for queue, type in product(("fax", "mail"), ("shop.add", "shop.pay")):
            make_works(400, queue=queue, type=type)
        if connection.vendor == "mysql":
            assert entries_read(lambda: lanes_of(["mail"])) < 50
            assert entries_read(lambda: lanes_behind("", 1)) < 4 * lanes.ENTRIES
            return
        analyse("django_ayework_work")
        with connection.cursor() as cursor:  # the server counts what a scan of an index returned
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS) {lanes.LANES_BEHIND}", ("", 50))
            plan = [line for (line,) in cursor.fetchall()]
        scans = [line for line in plan if "Scan using ayework_lane" in line]
        assert scans and all(re.search(r"rows=[01](\.\d+)? loops", line) for line in scans), plan

    @pytest.mark.parametrize("label", ["flood", "another"])
    @pytest.mark.parametrize("number", [1, 9])
    def test_a_new_work_finds_its_turn_by_an_entry_of_two_indexes_however_many_wait(self, label, number):
        let_thousands_wait("flood")
        requests = [add(a=1, b=n) for n in range(number)]
        assert_finds_turns(plans_of(lambda: enqueue_many(requests, fairness=label)))
        if connection.vendor == "mysql":
            assert entries_read(lambda: enqueue(add(a=1, b=2), fairness=label)) < 20
        last = Work.objects.filter(fairness="flood").latest("sort_key").sort_key
        assert (last > "1767225600009999") is (label == "flood")

    def test_works_of_many_labels_find_their_turns_by_an_entry_of_two_indexes_each(self):
        let_thousands_wait("flood")
        turns = {"flood": "1767225600010000", "another": "1767225600001000", "third": "1767225600001000"}
        places = {label: FairnessKey("default", "shop.add", 0, label) for label in turns}
        assert_finds_turns(plans_of(lambda: turns_of(places, clock.now())))
        if connection.vendor == "mysql":
            assert entries_read(lambda: turns_of(places, clock.now())) < 40
        assert turns_of(places, clock.now()) == turns

    def test_pruning_one_type_reads_ended_works_of_that_type_alone(self):
        before = clock.now() + timedelta(minutes=1)
        for count, ended_at in ((20, clock.now()), (200, before + timedelta(hours=1))):
            make_works(count, type="shop.tick", status="success", ended_at=ended_at)
        page = deletion.page_of_ended("success", "shop.tick", before, None, 10)
        next_page = partial(deletion.page_of_ended, "success", "shop.tick", before, page[-1], 100)
        assert_reads_through("ayework_ended", plans_of(next_page))
        assert_scans_nothing(
            plans_of(lambda: deletion.delete_unneeded("success", [work.id for work in page]))
        )
        assert Work.objects.filter(type="shop.tick").count() == 210

    def test_the_types_that_have_ended_are_found_by_an_entry_each(self):
        WorkFactory(type="shop.tick", status="success", ended_at=clock.now())
        plans = plans_of(lambda: list(deletion.types_ended("success")))
        assert len(plans) == 3
        assert_reads_in_order("ayework_ended", plans)
        assert [type for type, _ in deletion.types_ended("success")] == ["shop.add", "shop.tick"]

    def test_the_far_future_is_left_alone(self):
        assert transitions.make_pending(clock.now(), 100) == []
        assert Work.objects.filter(status="pending").count() == 0

    def test_works_ahead_are_the_beginning_of_their_lane(self):
        row = rows.find_row(make_works(20)[-1].id)
        plans = plans_of(lambda: lanes.works_ahead(row, ["shop.add"], 1000))
        assert_reads_in_order("ayework_lane", plans)
        assert lanes.works_ahead(row, ["shop.add"], 1000) == 19

    @pytest.mark.parametrize("keys", [["s7"], [f"s{number}" for number in range(1, 100)]])
    @pytest.mark.parametrize("scope", ["incomplete", "any"])
    def test_looking_for_a_dedup_key_reads_the_works_of_that_key_alone(self, keys, scope):
        search = Search("shop.add", scope, clock.now() - timedelta(days=1), ("s8",))
        assert_reads_through("ayework_key", plans_of(lambda: newest_matches(search, keys)))

    def test_looking_for_a_key_or_a_unit_that_recurs_passes_over_all_that_have_ended(self):
        current = WorkFactory(dedup_key="tick").id
        search = Search("shop.add", "incomplete", None, ())
        assert_reads_through("ayework_key", plans_of(lambda: newest_matches(search, ["tick"])))
        assert newest_matches(search, ["tick"]) == {"tick": current}
        make_works(40, status="success", unit="order-7", ended_at=clock.now())
        current, pairs = WorkFactory(unit="order-7").id, [("shop.add", "order-7")]
        assert_reads_through("ayework_unit", plans_of(lambda: find_live_units(pairs)))
        assert [row.id for row in find_live_units(pairs).values()] == [current]

    @pytest.mark.parametrize("chains", [1, 100])
    def test_deleting_reads_the_works_of_the_chains_alone(self, chains):
        ids = [f"f{number}" for number in range(1, chains + 1)]
        later = [WorkFactory(chain_id=id, chain_index=1).id for id in ids]
        assert_reads_through("ayework_chain", plans_of(lambda: deletion.steps_among(ids)))
        with atomic():
            assert_scans_nothing(plans_of(lambda: deletion.lock_steps([*ids, *later])))
        assert_scans_nothing(plans_of(lambda: deletion.erase([*ids, *later])))

    def test_a_page_of_a_chain_and_an_empty_group_are_found_by_their_works_alone(self):
        for number in range(1, 50):
            WorkFactory(chain_id="f1", chain_index=number)
        [plan] = plans_of(lambda: rows.steps_from("f1", 10, 5))
        assert_reads_in_order("ayework_chain", [plan])
        ids = [GroupFactory().id for _ in range(3)]
        WorkFactory(group_id=ids[0])
        assert_reads_through("ayework_group", plans_of(lambda: rows.delete_emptied(ids)))


def let_thousands_wait(label: str) -> None:
    """Make 9 000 of the far-future works wait, with the turns from 1767225600001000 on; and 60 others."""
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
    make_works(60)


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
    act = lambda: found.extend(processes_seen_since(since))  # noqa: E731
    plans = plans_of(act, "django_ayework_workerprocess")
    assert any("ayework_workers" in plan for plan in plans), plans
    assert len(found) == 3


GATES, EACH = 10_000 // SHARE, 2
WAITERS, EDGES, GROUPS = (model._meta.db_table for model in (Waiter, Edge, Group))
OUTCOMES = Outcomes({f"w{gate}-{place}": Status.SUCCESS for gate in (3, 4) for place in range(EACH)}, {})


@pytest.fixture(scope="class")
def gates(django_db_setup, django_db_blocker):
    """Gates that watch two works each, and as many groups; deleted afterwards."""
    names = [f"gate{number}" for number in range(GATES)]
    watched = {name: [Watch(f"w{name[4:]}-{place}") for place in range(EACH)] for name in names}
    waiters = [WaiterRow(name, '"all-success"', "dead", EACH, 0, 0, False) for name in names]
    with django_db_blocker.unblock():
        dependencies.insert_waiters(waiters, watched)
        rows.insert_groups(rows.GroupRow(name) for name in names)
        for table in (WAITERS, EDGES, GROUPS):
            analyse(table)
        yield
        for model in (Edge, Waiter, Group):
            model.objects.all().delete()


def assert_reads_few_edges(plans: list[str]) -> None:
    """Edges are read by the watched works, or one by one, never all of a waiter's."""
    for plan in plans:
        assert "ayework_watchers" in plan or "PRIMARY" in plan or "django_ayework_edge_pkey" in plan, plan
        assert "ayework_watched" not in plan, plan


@pytest.mark.django_db
@pytest.mark.usefixtures("gates")
class TestAmongManyGates:
    def test_watchers_are_found_by_the_watched_works_and_locked_by_their_keys(self):
        edges = plans_of(lambda: dependencies.watchers_of(OUTCOMES.ids), EDGES)
        assert any("ayework_watchers" in plan for plan in edges), edges
        assert_scans_nothing(edges, EDGES)
        assert_scans_nothing(plans_of(lambda: dependencies.lock_waiters(["gate7"]), WAITERS), WAITERS)
        assert_scans_nothing(plans_of(lambda: rows.lock_groups(["gate7"]), GROUPS), GROUPS)

    @pytest.mark.parametrize("way", ["record", "resolve", "resolve without kept plans"])
    def test_outcomes_are_recorded_through_the_watched_works(self, way, monkeypatch):
        monkeypatch.setattr(dependencies, "keeps_plans", lambda database: way == "resolve")

        def act(gate):
            if way == "record":
                return dependencies.record_outcomes(dependencies.read_waiters([gate]), OUTCOMES)
            return dependencies.resolve_waiters(set(), OUTCOMES)

        edges, waiters = plans_of(lambda: act("gate3"), EDGES), plans_of(lambda: act("gate4"), WAITERS)
        assert_scans_nothing(edges, EDGES)
        assert_scans_nothing(waiters, WAITERS)
        assert_reads_few_edges(edges)
