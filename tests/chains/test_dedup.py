"""Deduplication of chains: a chain is there until its last work has ended."""

from __future__ import annotations

import pytest

from django_ayework import Context, Dedup, Retry, cancel, enqueue, retry, work
from django_ayework.models import Work
from django_ayework.testing import drain, perform, time_travel
from tests.app.works import add

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("consistent")]
KEY = Dedup("k")


@work(name="t.keyed.first", retry=Retry(attempts=1))
def first(ctx: Context, steps: int = 1):
    return ctx.continue_with(step(left=steps - 1), delay=60)


@work(name="t.keyed.step", retry=Retry(attempts=1))
def step(ctx: Context, left: int):
    if left < 0:
        raise ValueError("no step is left")
    return ctx.continue_with(step(left=left - 1), delay=60) if left else ctx.result("done")


@work(name="t.keyed.computed", options=lambda key: {"dedup": Dedup(key)})
def computed(ctx: Context, key: str):
    return ctx.continue_with(computed(key="another"), delay=60) if key == "k" else ctx.result(key)


@work(name="t.keyed.refused")
def refused(ctx: Context, option: str):
    return ctx.continue_with(step(left=1), **{option: KEY if option == "dedup" else "u"})


def walk(times: int = 1) -> None:
    """Run what is due, then let a minute pass, each time."""
    for _ in range(times):
        drain(raises=False)
        time_travel(60)


def test_a_chain_that_goes_on_is_there_and_its_handle_is_that_of_its_first_work():
    handle = enqueue(first(steps=3), dedup=KEY)
    for _ in range(3):
        drain()
        again = enqueue(first(steps=3), dedup=KEY)
        assert (again.id, again.chain_id, again.deduplicated) == (handle.id, handle.id, True)
        time_travel(60)
    drain()
    assert handle.chain(timeout=0) == "done"
    assert enqueue(first(), dedup=Dedup("k", "any")).id == handle.id
    assert not enqueue(first(), dedup=KEY).deduplicated


def test_the_key_is_that_of_the_first_works_type_in_every_step():
    enqueue(first(), dedup=KEY)
    drain()
    assert not enqueue(step(left=0), dedup=KEY).deduplicated


@pytest.mark.parametrize("then", ["retry", "cancel"])
def test_a_chain_whose_last_work_is_dead_or_cancelled_has_ended_until_it_is_retried(then):
    handle = enqueue(first(steps=0), dedup=KEY)
    walk()
    drain(raises=False)
    assert handle.state().status == "success"
    if then == "retry":
        retry(Work.objects.get(chain_id=handle.id, chain_index=1).id, input={"left": 0})
        assert enqueue(first(), dedup=KEY).id == handle.id
        return
    assert not enqueue(first(), dedup=KEY).deduplicated
    cancel(Work.objects.get(status="pending").id)
    assert not enqueue(first(), dedup=KEY).deduplicated


def test_of_several_chains_the_one_that_began_last_is_given():
    old = enqueue(first(steps=5), dedup=KEY)
    time_travel(1)
    new = enqueue(first(steps=5), dedup=Dedup("k", exclude=[old]))
    walk()
    drain()
    assert enqueue(first(), dedup=KEY).id == new.id
    assert enqueue(first(), dedup=Dedup("k", exclude=[new])).id == old.id
    assert not enqueue(first(), dedup=Dedup("k", exclude=[new, old])).deduplicated


@pytest.mark.parametrize("scope", ["incomplete", "any"])
def test_a_window_counts_from_the_chains_beginning(scope):
    enqueue(first(steps=5), dedup=KEY)
    walk(2)
    assert enqueue(first(), dedup=Dedup("k", scope, window=125)).deduplicated
    assert not enqueue(first(), dedup=Dedup("k", scope, window=115)).deduplicated


def test_a_continuation_keeps_the_key_of_its_chain_whatever_its_type_computes():
    handle = enqueue(computed(key="k"))
    drain()
    assert enqueue(computed(key="k")).id == handle.id
    assert not enqueue(computed(key="another")).deduplicated


@pytest.mark.parametrize("option", ["dedup", "unit"])
def test_a_continuation_takes_no_key_of_its_own(option):
    error = perform(refused(option=option)).error
    assert isinstance(error, TypeError)
    assert f"ctx.continue_with(...) takes no {option}=" in str(error)


def test_works_without_a_key_have_none_anywhere():
    enqueue(first())
    enqueue(add(a=1, b=2))
    drain()
    assert set(Work.objects.values_list("dedup_key", "dedup_type")) == {(None, None)}
