"""Completing a chain without a worker: its id stands for the step that the chain is at."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ayework import AlreadyCompleted, WorkNotFound, complete, completing, enqueue
from django_ayework.flow.settle import Settlement, Success, settle
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.app.works import add
from tests.chains.kit import count, gather, onward, steps_of
from tests.invariants import assert_consistent
from tests.races.rivals import claim_all

pytestmark = pytest.mark.django_db


def test_completing_a_chain_acts_on_the_step_it_is_at():
    handle = enqueue(count(n=0, until=9))
    drain(limit=2)
    for index, n in ((2, 7), (3, 8)):
        with completing(handle.chain_id) as ctx:
            assert (ctx.id, ctx.chain_id) == (steps_of(handle.id)[index].id, handle.id)
            ctx.continue_with(count(n=n, until=9))
    complete(handle.chain_id, "enough")
    assert handle.chain() == "enough"
    assert [step.status for step in steps_of(handle.id)] == ["success"] * 5
    assert_consistent()


def test_several_steps_of_a_chain_are_completed_in_one_transaction():
    handle = enqueue(count(n=0, until=9))
    with transaction.atomic():
        for n in (1, 2):
            with completing(handle.id) as ctx:
                ctx.continue_with(count(n=n, until=9))
        complete(handle.id, n)
    assert handle.chain() == 2


def test_the_running_step_of_a_chain_is_completed_and_its_late_result_refused():
    handle = enqueue(count(n=0, until=9))
    drain(limit=1)
    [row] = claim_all().values()
    complete(handle.id, "enough")
    assert settle([Settlement(row, Success("1"))]).refused == [row.id]
    assert handle.chain() == "enough"


def test_the_blocked_step_of_a_chain_is_completed_and_what_the_chain_blocks_runs():
    blocker = enqueue(add(a=1, b=1), delay=60)
    handle = enqueue(onward(of=[blocker.id]))
    behind = enqueue(gather(), blockers=[handle])
    drain()
    assert steps_of(handle.id)[-1].status == "blocked"
    complete(handle.id, "done")
    drain()
    assert behind.result() == ["done"]
    assert_consistent()


def test_a_chain_or_step_that_has_ended_is_not_completed_again():
    handle = enqueue(count(n=0, until=2))
    drain(limit=2)
    _, second, last = steps_of(handle.id)
    drain()
    with pytest.raises(AlreadyCompleted) as error:
        complete(handle.id)
    assert str(error.value) == (
        f"the chain {handle.id} has ended already: its last step {last.id} (t.chain.count) is success, "
        "so it cannot be completed."
    )
    assert error.value.id == handle.id
    for step in (second, last):
        with pytest.raises(AlreadyCompleted, match=f"the work {step.id} .* has ended already: it is success"):
            complete(step.id)
    with pytest.raises(WorkNotFound) as missing:
        complete("nobody")
    assert str(missing.value) == "no work has the id 'nobody', so it cannot be completed."


def test_a_later_work_that_has_handed_over_is_no_chain():
    handle = enqueue(count(n=0, until=9))
    drain(limit=2)
    step = steps_of(handle.id)[1]
    with pytest.raises(AlreadyCompleted, match=f"the work {step.id}"):
        complete(step.id)


def test_a_chain_without_its_first_work_is_completed_all_the_same():
    handle = enqueue(count(n=0, until=9))
    drain(limit=1)
    Work.objects.filter(id=handle.id).delete()
    complete(handle.id, "enough")
    [last] = Work.objects.filter(chain_id=handle.id)
    assert last.status == "success"


def test_completing_a_work_takes_no_statement_more_for_chains():
    handle = enqueue(add(a=1, b=1))
    with CaptureQueriesContext(connection) as seen, completing(handle.id):
        pass
    read = [query["sql"] for query in seen if query["sql"].startswith("SELECT")]
    assert len(read) == 2, "what it waits for, and its row"
