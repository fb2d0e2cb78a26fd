"""Every settlement looks for those who watch what has ended, and there may be many who watch others."""

from __future__ import annotations

import pytest

from django_ayework.models import Edge, Group, Waiter
from django_ayework.rules.states import Status
from django_ayework.store import resolution
from django_ayework.store.clock import clock
from django_ayework.store.dependencies import (
    Outcomes,
    WaiterRow,
    Watch,
    insert_waiters,
    lock_waiters,
    read_waiters,
    watchers_of,
)
from django_ayework.store.groups import GroupRow, count_in_group, insert_groups
from django_ayework.store.resolution import record_outcomes, resolve_waiters
from tests.store.plans import analyse, plans_of, scans_table

GATES, EACH = 20_000, 2
WAITERS, EDGES, GROUPS = (model._meta.db_table for model in (Waiter, Edge, Group))
OUTCOMES = Outcomes({f"w{gate}-{place}": Status.SUCCESS for gate in (3, 4) for place in range(EACH)}, {})

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("crowd")]


@pytest.fixture(scope="module")
def crowd(django_db_setup, django_db_blocker):
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


def test_watchers_are_found_through_what_they_watch_and_locked_by_their_keys():
    edges = plans_of(lambda: watchers_of(OUTCOMES.ids), EDGES)
    assert_scans_nothing({EDGES: edges, WAITERS: plans_of(lambda: lock_waiters(["gate7"]), WAITERS)})
    assert any("ayework_watchers" in plan for plan in edges), edges


def test_edges_are_told_through_what_they_watch():
    for table, gate in ((EDGES, "gate3"), (WAITERS, "gate4")):
        plans = plans_of(lambda gate=gate: record_outcomes(read_waiters([gate]), OUTCOMES), table)
        assert_scans_nothing({table: plans, "edge": plans})
        assert table == WAITERS or all(are_few(plan) for plan in plans), plans


@pytest.mark.parametrize("keeps_plans", [True, False])
def test_waiters_are_resolved_through_what_they_watch(keeps_plans, monkeypatch):
    monkeypatch.setattr(resolution, "keeps_plans", lambda database: keeps_plans)
    for table in (EDGES, WAITERS):
        plans = plans_of(lambda: resolve_waiters(set(), OUTCOMES), table)
        assert plans
        assert_scans_nothing({table: plans})
        assert table == WAITERS or all(are_few(plan) for plan in plans), plans


def are_few(plan: str) -> bool:
    """Tell whether edges are read by what they watch, or one by one, never all of a waiter's."""
    by_key = "PRIMARY" in plan or "django_ayework_edge_pkey" in plan
    return ("ayework_watchers" in plan or by_key) and "ayework_watched" not in plan


def test_a_group_is_counted_through_its_key():
    assert_scans_nothing({GROUPS: plans_of(lambda: count_in_group("gate7", -1, 0, 0, clock.now()), GROUPS)})
