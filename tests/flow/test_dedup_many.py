"""Deduplication within a batch, by what a type computes, and where it is refused; a work that recurs."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, Dedup, complete, dependency, enqueue, enqueue_many, work
from django_ayework.models import Group, Work
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add

pytestmark = pytest.mark.django_db

KEY = Dedup("k")


@work(name="t.dedup.keyed", options=lambda n, **_: {"dedup": Dedup(f"n{n}")})
def keyed(ctx: Context, n: int):
    return ctx.result(n)


@work(name="t.dedup.maybe", options=lambda n: {"dedup": Dedup(f"n{n}") if n else None})
def maybe(ctx: Context, n: int):
    return ctx.result(n)


@work(name="t.dedup.choosy", options=lambda past: {"dedup": Dedup("k", exclude=past)})
def choosy(ctx: Context, past: list[str]):
    return ctx.result(past)


@work(name="t.dedup.tick")
def tick(ctx: Context, runs: int):
    if runs > 1:
        enqueue(tick(runs=runs - 1), dedup=Dedup("tick", exclude=[ctx.id]), delay=60)
    return ctx.result(runs)


@work(name="t.dedup.parent")
def parent(ctx: Context, how: str):
    if how == "queue option":
        return ctx.queue([add(a=1, b=2)], dedup=KEY)
    if how == "queued type":
        return ctx.queue([[keyed(n=1)]])
    if how == "next option":
        return ctx.queue([add(a=1, b=2)]).next(add(a=1, b=2), dedup=KEY)
    return ctx.queue([add(a=1, b=2)]).next(keyed(n=1))


def test_an_option_of_the_batch_makes_it_one_work() -> None:
    handles = enqueue_many([add(a=n, b=0) for n in range(3)], dedup=KEY)
    assert {handle.id for handle in handles} == {Work.objects.get().id}
    assert [handle.deduplicated for handle in handles] == [False, True, True]
    assert Work.objects.get().input == '{"a":0,"b":0}'


def test_a_batch_finds_what_was_there_before() -> None:
    first = enqueue(add(a=1, b=2), dedup=KEY)
    handles = enqueue_many([add(a=n, b=0) for n in range(2)], dedup=KEY)
    assert [(handle.id, handle.deduplicated) for handle in handles] == [(first.id, True)] * 2


def test_a_batch_of_two_after_the_window_is_one_new_work(time_travel: Any) -> None:
    dedup = Dedup("k", "any", window=60)
    old = enqueue(add(a=1, b=2), dedup=dedup)
    time_travel(61)
    first, second = enqueue_many([add(a=1, b=0), add(a=2, b=0)], dedup=dedup)
    assert first.id != old.id
    assert (first.deduplicated, second.id, second.deduplicated) == (False, first.id, True)


def test_what_is_excluded_is_passed_over_within_the_batch_too() -> None:
    first, second, third = (add(a=n, b=0) for n in range(3))
    handles = enqueue_many([first, second, third], dedup=Dedup("k", exclude=[first.id]))
    assert [(handle.id, handle.deduplicated) for handle in handles] == [
        (first.id, False),
        (second.id, False),
        (second.id, True),
    ]


def test_the_newest_of_the_batch_wins() -> None:
    first = choosy(past=[])
    second = choosy(past=[first.id])
    handles = enqueue_many([first, second, choosy(past=[]), choosy(past=[second.id])])
    assert [handle.id for handle in handles] == [first.id, second.id, second.id, first.id]


def test_a_type_computes_the_key_from_the_input() -> None:
    handles = enqueue_many([keyed(n=1), keyed(n=2), keyed(n=1)])
    assert [handle.deduplicated for handle in handles] == [False, False, True]
    assert handles[2].id == handles[0].id
    assert enqueue(keyed(n=2)).id == handles[1].id
    assert keyed.enqueue(n=1).deduplicated


def test_a_key_given_wins_over_the_computed_one() -> None:
    enqueue(keyed(n=1))
    assert not enqueue(keyed(n=1), dedup=KEY).deduplicated
    assert enqueue(keyed(n=2), dedup=KEY).deduplicated


def test_works_with_and_without_keys_can_be_queued_at_once() -> None:
    handles = enqueue_many([maybe(n=0), maybe(n=1), maybe(n=0), maybe(n=1), add(a=1, b=2)])
    assert [handle.deduplicated for handle in handles] == [False, False, False, True, False]
    assert Work.objects.count() == 4


def test_a_request_twice_in_the_list_is_one_work() -> None:
    request = keyed(n=1)
    handles = enqueue_many([request, request])
    assert [(handle.id, handle.deduplicated) for handle in handles] == [
        (request.id, False),
        (request.id, True),
    ]


def test_a_request_queued_before_is_not_new_to_the_others_of_its_key(drain: Any) -> None:
    known = keyed(n=1)
    enqueue(known)
    drain()
    handles = enqueue_many([known, keyed(n=1)])
    assert [handle.deduplicated for handle in handles] == [True, False]
    assert Work.objects.count() == 2


def test_a_group_is_made_of_the_works_that_are_new(drain: Any) -> None:
    there = enqueue(keyed(n=1))
    handles = enqueue_many([keyed(n=1), keyed(n=2), keyed(n=3), keyed(n=2)], together=True)
    assert [handle.deduplicated for handle in handles] == [True, False, False, True]
    assert handles[0].group_id == there.id
    assert {handle.group_id for handle in handles[1:]} == {handles[1].id}
    assert Group.objects.get().total == 2
    drain()
    assert handles[1].group(timeout=0) in (2, 3)


def test_a_group_of_which_all_were_there_is_none() -> None:
    enqueue_many([keyed(n=1), keyed(n=2)])
    handles = enqueue_many([keyed(n=1), keyed(n=2)], together=True)
    assert all(handle.deduplicated for handle in handles)
    assert (Work.objects.count(), Group.objects.count()) == (2, 0)


def test_many_keys_take_few_statements() -> None:
    enqueue_many([keyed(n=n) for n in range(600)])
    with CaptureQueriesContext(connection) as captured:
        handles = enqueue_many([keyed(n=n) for n in range(1200)])
    assert [handle.deduplicated for handle in handles] == [True] * 600 + [False] * 600
    assert Work.objects.count() == 1200
    assert len(captured) < 20


def test_nothing_is_queued_when_a_gate_is_among_the_keyed() -> None:
    with pytest.raises(TypeError, match="a gate takes no dedup="):
        enqueue_many([add(a=1, b=2), dependency(["one"], [add(a=1, b=2)])], dedup=KEY)
    with pytest.raises(TypeError, match="does not go with on_commit=True"):
        enqueue_many([keyed(n=1)], on_commit=True)
    assert Work.objects.count() == 0


def test_a_work_that_recurs_runs_once_per_round(drain: Any, time_travel: Any) -> None:
    enqueue(tick(runs=3), dedup=Dedup("tick"))
    for _ in range(5):
        drain()
        assert Work.objects.filter(status="scheduled").count() <= 1
        time_travel(61)
    assert sorted(Work.objects.values_list("status", "result")) == [("success", str(n)) for n in (1, 2, 3)]


def test_a_second_start_of_a_work_that_recurs_changes_nothing(drain: Any) -> None:
    enqueue(tick(runs=3), dedup=Dedup("tick"))
    drain()
    assert enqueue(tick(runs=9), dedup=Dedup("tick")).deduplicated
    assert Work.objects.count() == 2


@pytest.mark.parametrize("how", ["queue option", "queued type", "next option", "next type"])
def test_works_of_a_group_cannot_be_works_that_are_there(how: str, drain: Any, time_travel: Any) -> None:
    handle = enqueue(parent(how=how), retry=None)
    for _ in range(3):
        drain(raises=False)
        time_travel(60)
    state = handle.state()
    assert state is not None
    assert state.status == "dead"
    assert "takes no dedup=" in (state.error or "")
    assert "Queue it by itself with enqueue(..., dedup=...)" in (state.error or "")
    assert Work.objects.count() == 1


def test_a_gate_neither_releases_nor_watches_what_may_be_there() -> None:
    with pytest.raises(TypeError, match=r"dependency\(queue=\), given <WorkRequest t.dedup.keyed .*>, takes"):
        dependency(["one"], [keyed(n=1)])
    with pytest.raises(TypeError, match=r"dependency\(on=\), given .* takes no dedup="):
        dependency([keyed(n=1)], [add(a=1, b=2)])


def test_a_gate_watches_a_match_by_its_handle(drain: Any) -> None:
    enqueue(keyed(n=1))
    gate = enqueue(dependency([enqueue(keyed(n=1))], [add(a=1, b=2)]))
    drain()
    assert gate.group(timeout=0) == 3


def test_a_work_completed_by_hand_frees_the_key() -> None:
    first = enqueue(keyed(n=1))
    complete(first.id, 5)
    assert not enqueue(keyed(n=1)).deduplicated


def test_the_key_of_a_row_is_stored() -> None:
    assert WorkFactory(dedup_key="k").dedup_key == "k"
    enqueue(keyed(n=7))
    assert Work.objects.get(type="t.dedup.keyed").dedup_key == "n7"
