"""The value of a group: who contributes, in which order, and what stays."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from django_ayework import Context, Retry, WorkFailed, enqueue, enqueue_many, retry, work
from django_ayework.models import Group, Work
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


def total(amount: int) -> Any:
    return lambda existing: (existing or 0) + amount


@work(name="t.values.appender")
def appender(ctx: Context, amount: int, final: bool = False):
    return ctx.result(f"own {amount}", append=total(amount), final=final)


@work(name="t.values.final")
def final(ctx: Context, value: Any):
    return ctx.result(value, final=True)


@work(name="t.values.none")
def none(ctx: Context):
    return ctx.result(None)


@work(name="t.values.void")
def void(ctx: Context):
    return ctx.void()


@work(name="t.values.tree")
def tree(ctx: Context, values: list[Any]):
    """One contribution per value; a pair is a final one, a number in a list is folded in."""
    items: list[Any] = []
    for value in values:
        if isinstance(value, tuple):
            items.append(ctx.result(value[0], final=True))
        elif isinstance(value, list):
            items.append(ctx.result(None, append=total(value[0])))
        else:
            items.append(ctx.result(value))
    return ctx.queue(items)


def value_of(request: Any, drain: Any) -> Any:
    handle = enqueue(request)
    drain()
    return handle.group(timeout=0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3], 3),  # the last in the list wins
        ([(1,), 2], 1),  # final wins over what follows
        ([1, (2,), (3,), [4]], 2),  # the first final stays
        ([1, [10], [100]], 111),  # append folds what is there
        ([[10], [100]], 110),  # and begins with nothing
        ([1, [10], 5, [2]], 7),
        ([5, None], None),  # None is a word too
    ],
    ids=str,
)
def test_within_one_tree_the_order_of_the_list_counts(values: list[Any], expected: Any, drain: Any) -> None:
    assert value_of(tree(values=values), drain) == expected


def test_a_result_deep_in_the_tree_counts_in_its_place(drain: Any) -> None:
    @work(name="t.values.deep")
    def deep(ctx: Context):
        return ctx.queue([ctx.result(1), ctx.queue([ctx.result(2), [ctx.result(3)]]), ctx.void()])

    assert value_of(deep(), drain) == 3


def test_the_last_to_finish_wins(drain: Any) -> None:
    handles = enqueue_many([add(a=1, b=0), add(a=2, b=0), add(a=3, b=0)], together=True)
    Work.objects.filter(id=handles[0].id).update(priority=-1)
    drain()
    assert handles[0].group(timeout=0) == 1


def test_appends_fold_exactly_and_leave_the_own_results_alone(drain: Any) -> None:
    handles = enqueue_many([appender(amount=n) for n in (1, 2, 3)], together=True)
    drain()
    assert handles[0].group(timeout=0) == 6
    assert [handle.result(timeout=0) for handle in handles] == ["own 1", "own 2", "own 3"]


def test_a_final_append_folds_once_and_locks(drain: Any) -> None:
    handles = enqueue_many(
        [appender(amount=1), appender(amount=2, final=True), appender(amount=4), add(a=9, b=9)], together=True
    )
    drain()
    assert handles[0].group(timeout=0) == 3


def test_a_final_value_stays_whoever_comes_later(drain: Any) -> None:
    handles = enqueue_many([final(value="kept"), add(a=1, b=2), final(value="late")], together=True)
    drain()
    assert handles[2].group(timeout=0) == "kept"
    assert handles[2].result(timeout=0) == "late"
    assert Group.objects.get().final


def test_void_contributes_nothing(drain: Any) -> None:
    handles = enqueue_many([add(a=1, b=2), void()], together=True)
    drain()
    assert handles[0].group(timeout=0) == 3


def test_none_is_a_contribution(drain: Any) -> None:
    handles = enqueue_many([add(a=1, b=2), none()], together=True)
    drain()
    assert handles[0].group(timeout=0) is None
    assert Group.objects.get().value == "null"


def test_a_none_that_was_contributed_is_there_for_append_to_see(drain: Any) -> None:
    seen: list[Any] = []

    @work(name="t.values.sees")
    def sees(ctx: Context):
        return ctx.queue([ctx.result(None), ctx.result(0, append=lambda existing: seen.append(existing))])

    assert value_of(sees(), drain) is None
    assert seen == [None]


def test_a_work_alone_is_its_own_group(drain: Any) -> None:
    handle = enqueue(add(a=1, b=2))
    drain()
    assert handle.group(timeout=0) == handle.result(timeout=0) == 3
    assert Group.objects.count() == 0


def test_append_of_a_work_alone_makes_the_groups_value(drain: Any) -> None:
    handle = enqueue(appender(amount=5))
    drain()
    assert (handle.result(timeout=0), handle.group(timeout=0)) == ("own 5", 5)
    group = Group.objects.get()
    assert (group.open, group.total, group.dead) == (0, 1, 0)
    assert group.done_at is not None


def test_the_parents_value_in_its_tree_can_be_final(drain: Any) -> None:
    @work(name="t.values.parent")
    def parent(ctx: Context):
        return ctx.queue([add(a=1, b=1), ctx.result({"by": "parent"}, final=True)])

    handle = enqueue(parent())
    drain()
    assert handle.group(timeout=0) == {"by": "parent"}
    assert handle.result(timeout=0) is None


def test_a_dead_work_alone_gives_none_and_its_result_raises(drain: Any) -> None:
    handle = enqueue(fail(message="no luck"), retry=Retry(attempts=1))
    drain(raises=False)
    assert handle.group(timeout=0) is None
    with pytest.raises(WorkFailed, match="RuntimeError: no luck") as raised:
        handle.result(timeout=0)
    assert raised.value.id == handle.id


def test_a_dead_member_leaves_the_value_of_the_others(drain: Any) -> None:
    handles = enqueue_many([add(a=1, b=2), fail()], together=True, retry=Retry(attempts=1))
    drain(raises=False)
    assert handles[1].group(timeout=0) == 3
    assert Group.objects.get().dead == 1


def test_only_dead_members_give_none(drain: Any) -> None:
    handles = enqueue_many([fail(), fail()], together=True, retry=Retry(attempts=1))
    drain(raises=False)
    assert handles[0].group(timeout=0) is None


def test_a_retried_member_opens_the_group_again_and_may_change_its_value(drain: Any) -> None:
    lucky: list[bool] = []

    @work(name="t.values.second_life", retry=Retry(attempts=1))
    def second_life() -> str:
        if not lucky:
            raise ValueError("not yet")
        return "at last"

    handles = enqueue_many([second_life(), add(a=1, b=2)], together=True)
    drain(raises=False)
    assert handles[0].group(timeout=0) == 3
    lucky.append(True)
    retry(handles[0].id)
    group = Group.objects.get()
    assert (group.open, group.dead, group.done_at) == (1, 0, None)
    drain()
    assert handles[1].group(timeout=0) == "at last"
    group.refresh_from_db()
    assert (group.open, group.total, group.dead) == (0, 2, 0)
    assert group.done_at is not None


def test_rich_values_come_back_as_they_were(drain: Any) -> None:
    @work(name="t.values.rich")
    def rich(ctx: Context):
        return ctx.queue([ctx.result({"price": Decimal("4.50"), "tags": {"a"}, "pair": (1, None)})])

    assert value_of(rich(), drain) == {"price": Decimal("4.50"), "tags": {"a"}, "pair": (1, None)}


def test_the_groups_value_is_encoded_by_the_settings_even_where_a_type_has_a_codec(drain: Any) -> None:
    class Shouting:
        def encode(self, value: Any) -> str:
            return f"!{value}!" if isinstance(value, int) else "{}"

        def decode(self, text: str) -> Any:
            return int(text.strip("!")) if text.startswith("!") else {}

    @work(name="t.values.own_codec", codec=Shouting())
    def own_codec(ctx: Context):
        return ctx.result(41, append=lambda existing: 42)

    handle = enqueue(own_codec())
    drain()
    assert Work.objects.get().result == "!41!"
    assert Group.objects.get().value == "42"
    assert (handle.result(timeout=0), handle.group(timeout=0)) == (41, 42)
