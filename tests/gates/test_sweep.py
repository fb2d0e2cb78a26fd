"""The sweep: waiters that were left behind, which a correct run never has."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from django_ayework import Context, Status, dependency, enqueue, enqueue_many, work
from django_ayework.flow.maintenance import sweep, sweep_page
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.store import resolution
from django_ayework.store.clock import clock
from django_ayework.testing import drain
from tests.gates.works import labels, step


@work(name="gates.countdown")
def countdown(ctx: Context, left: int):
    return ctx.continue_with(countdown(left=left - 1)) if left else ctx.result(None)


def strand(*gates) -> None:
    """Make gates that are open forget how what they watched ended, as if a settlement had missed them."""
    ids = [gate.id for gate in gates]
    Edge.objects.filter(waiter_id__in=ids).update(outcome="")
    Waiter.objects.filter(work_id__in=ids).update(succeeded=0)
    Work.objects.filter(parent_id__in=ids).delete()
    Work.objects.filter(id__in=ids).update(status="blocked", ended_at=None, group_id=None)
    Group.objects.filter(id__in=ids).delete()


def test_the_sweep_frees_a_waiter_that_was_left_behind_and_says_so(caplog):
    member = enqueue(step(label="a"))
    gate = enqueue(dependency([member], [step(label="after")]))
    drain(limit=1)
    strand(gate)
    with caplog.at_level(logging.ERROR, "django_ayework"):
        assert sweep() == 1
    assert gate.id in caplog.text
    drain()
    assert labels() == ["a", "after"]


def test_a_chain_that_ends_while_the_sweep_reads_is_no_bug(monkeypatch, caplog):
    """What the sweep has read by then is of two moments."""
    chain = enqueue(countdown(left=1))
    waiting = enqueue(step(label="after"), blockers=[chain])
    drain(limit=1)
    read = resolution.chain_ends

    def settle_then_read(ids):
        monkeypatch.undo()
        drain(limit=1)
        return read(ids)

    monkeypatch.setattr(resolution, "chain_ends", settle_then_read)
    assert sweep() == 0
    assert waiting.state().status is Status.PENDING
    assert not caplog.records


def test_a_waiter_that_another_recheck_decides_while_the_sweep_reads_is_no_bug(monkeypatch, caplog):
    member = enqueue(step(label="a"))
    gate = enqueue(dependency([member], []))
    drain()
    strand(gate)
    waiters = resolution.rows

    def sweep_first(model):
        """Let another process sweep when this one has found the edge."""
        if model is Waiter:
            monkeypatch.undo()
            assert sweep() == 1
            caplog.clear()
        return waiters(model)

    page = resolution.blocked_page(None)
    assert page.ids == [gate.id]
    monkeypatch.setattr("django_ayework.flow.maintenance.blocked_page", lambda after: page)
    monkeypatch.setattr(resolution, "rows", sweep_first)
    assert sweep_page() == (0, None)
    assert gate.state().status is Status.SUCCESS
    assert not caplog.records


def test_pages_come_to_each_blocked_work_once(monkeypatch):
    """Some have no deadline, some the same, some their own."""
    monkeypatch.setattr(resolution, "WAITERS", 3)
    now = clock.now() + timedelta(days=1)
    deadlines = [None] * 5 + [now] * 4 + [now + timedelta(seconds=number) for number in range(4)]
    gates = [dependency(["unborn"], []) for _ in deadlines]
    for gate, deadline in zip(gates, deadlines, strict=True):
        enqueue(gate, **({"deadline": deadline} if deadline else {}))
    drain()
    pages, place = [], None
    while True:
        page = resolution.blocked_page(place)
        pages.append(page.ids)
        if (place := page.next) is None:
            break
    assert sorted(id for ids in pages for id in ids) == sorted(gate.id for gate in gates)
    assert max(map(len, pages)) == 3


def test_a_page_has_few_edges_or_those_of_one_work(monkeypatch):
    monkeypatch.setattr(resolution, "EDGES", 10)
    for number in (4, 4, 4, 25, 1):
        enqueue(dependency([f"unborn-{each}" for each in range(number)], []))
    drain()
    sizes, place = [], None
    while True:
        page = resolution.blocked_page(place)
        sizes.append(Edge.objects.filter(waiter_id__in=page.ids).count())
        if (place := page.next) is None:
            break
    assert (sum(sizes), max(sizes)) == (38, 25)
    assert all(size <= 10 for size in sizes if size != 25)


def test_stranded_waiters_are_found_on_any_page(monkeypatch):
    monkeypatch.setattr(resolution, "WAITERS", 2)
    members = [step(label=str(number)) for number in range(7)]
    gates = enqueue_many([dependency([member], []) for member in members])
    drain()
    enqueue_many(members)
    drain()
    strand(*gates)
    found, place = [], None
    while True:
        page = sweep_page(place)
        found.append(page.found)
        if (place := page.next) is None:
            break
    assert found[:3] == [2, 2, 2]
    assert sum(found) == 7
    assert {gate.state().status for gate in gates} == {Status.SUCCESS}


@pytest.mark.parametrize("blocked", [0, 1])
def test_a_sweep_of_few_blocked_works_takes_few_statements(blocked, django_assert_max_num_queries):
    for _ in range(blocked):
        enqueue(dependency(["unborn"], []))
    drain()
    with django_assert_max_num_queries(12):
        assert sweep() == 0
