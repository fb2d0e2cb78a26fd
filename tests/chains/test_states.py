"""The state of a chain: what it was queued with, how its last step stands, its steps page by page."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import Retry, cancel, dependency, enqueue, get_handle
from django_ayework.errors import InvalidOption
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.app.works import add, fail
from tests.chains.kit import count, onward

pytestmark = pytest.mark.django_db


def indexes(chain) -> list[int]:
    return [step.chain_index for step in chain.steps]


def test_it_shows_the_entry_the_steps_and_the_output_of_the_last():
    handle = enqueue(count(n=0, until=2))
    drain()
    chain = handle.chain_state()
    assert (chain.id, chain.type, chain.input) == (handle.id, "t.chain.count", {"n": 0, "until": 2})
    assert (chain.status, chain.output, chain.error, chain.length) == ("success", 2, None, 3)
    assert [step.result for step in chain.steps] == [None, None, 2]
    assert chain.steps == tuple(get_handle(step.id).state() for step in chain.steps)
    assert (chain.queued_at, chain.ended_at) == (chain.steps[0].queued_at, chain.steps[-1].ended_at)
    assert chain.next_start is None
    assert all(get_handle(step.id).chain_state() == chain for step in chain.steps)
    assert async_to_sync(handle.achain_state)(start=1, limit=1) == handle.chain_state(start=1, limit=1)


def test_its_status_is_that_of_the_step_it_is_at():
    handle = enqueue(count(n=0, until=2))
    assert (handle.chain_state().status, handle.chain_state().length) == ("pending", 1)
    drain(limit=1)
    chain = handle.chain_state()
    assert [step.status for step in chain.steps] == ["success", "pending"]
    assert (chain.status, chain.output, chain.ended_at) == ("pending", None, None)
    cancel(chain.steps[-1].id)
    assert (handle.chain_state().status, handle.chain_state().ended_at is None) == ("cancelled", False)


def test_a_chain_of_one_and_a_chain_of_none():
    dead, done = enqueue(fail(), retry=Retry(attempts=1)), enqueue(add(a=1, b=2))
    gate = enqueue(dependency(on=["x"], queue=[add(a=1, b=1)]))
    drain(raises=False)
    chain = dead.chain_state()
    assert (chain.status, chain.error, chain.output) == ("dead", dead.state().error, None)
    assert chain.error
    chain = done.chain_state()
    assert (chain.type, chain.input, chain.output) == ("shop.add", {"a": 1, "b": 2}, 3)
    assert (chain.steps, chain.length) == ((done.state(),), 1)
    assert (gate.chain_state().input, gate.chain_state().status) == (None, "blocked")
    assert get_handle("nobody").chain_state() is None
    Work.objects.update(input="no json")
    assert done.chain_state().input == "no json", "it cannot be read"


def test_the_steps_come_page_by_page():
    handle = enqueue(count(n=0, until=4))
    drain()
    whole = handle.chain_state()
    pages, start = [], 0
    while start is not None:
        page = handle.chain_state(start=start, limit=2)
        assert (page.status, page.output, page.length, page.input) == ("success", 4, 5, whole.input)
        pages.append(page)
        start = page.next_start
    assert [indexes(page) for page in pages] == [[0, 1], [2, 3], [4]]
    assert tuple(step for page in pages for step in page.steps) == whole.steps
    assert handle.chain_state(start=5).steps == ()
    assert handle.chain_state(limit=5).next_start is None


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ({"limit": 0}, "expected limit to be a whole number, from 1 to 1000, got: 0."),
        ({"limit": 1001}, "expected limit to be a whole number, from 1 to 1000, got: 1001."),
        ({"start": -1}, "expected start to be a whole number, 0 or more, got: -1."),
        ({"start": "x"}, "expected start to be a whole number, 0 or more, got: 'x'."),
    ],
)
def test_a_page_that_cannot_be_is_refused(page, message):
    with pytest.raises(InvalidOption) as error:
        get_handle("any").chain_state(**page)
    assert str(error.value) == message


def test_the_steps_show_what_they_wait_or_had_waited_for():
    blocker = enqueue(add(a=1, b=1))
    member = enqueue(add(a=2, b=2))
    first = onward(of=[blocker.id])
    enqueue(dependency(on=[member], queue=[first]))
    drain()
    chain = get_handle(first.id).chain_state()
    assert [step.dependents for step in chain.steps] == [(member.id,), ()]
    assert [step.blockers for step in chain.steps] == [(), (blocker.id,)]
    assert chain.steps == tuple(get_handle(step.id).state() for step in chain.steps)


def test_a_chain_of_many_steps_costs_a_few_statements():
    handle = enqueue(count(n=0, until=30))
    drain()
    with CaptureQueriesContext(connection) as seen:
        assert len(handle.chain_state().steps) == 31
    assert len(seen) == 2
    with CaptureQueriesContext(connection) as seen:
        assert indexes(handle.chain_state(start=20, limit=5)) == [20, 21, 22, 23, 24]
    assert len(seen) == 4


def test_a_chain_without_its_first_work_shows_what_is_left():
    handle = enqueue(count(n=0, until=2))
    drain()
    Work.objects.filter(id=handle.id).delete()
    chain = handle.chain_state()
    assert (chain.id, chain.type, chain.input, chain.queued_at) == (handle.id, None, None, None)
    assert (indexes(chain), chain.length, chain.output) == ([1, 2], 3, 2)
