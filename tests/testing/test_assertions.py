"""``enqueued``, ``assert_enqueued``, ``assert_not_enqueued``: what is queued, and what is said if not."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from django_ayework import Status, UnknownWorkType, dependency, enqueue, registry, work
from django_ayework.define.requests import GATE_TYPE
from django_ayework.models import Work
from tests.app.works import add, notify, pay

pytestmark = pytest.mark.django_db


def test_works_come_oldest_first_whatever_their_status(enqueued: Any, drain: Any) -> None:
    handles = [enqueue(add(a=1, b=2), id="zz"), enqueue(add(a=3, b=4)), enqueue(notify(order_id=1), id="aa")]
    drain(limit=1)
    assert [state.id for state in enqueued()] == [handle.id for handle in handles]
    assert [state.id for state in enqueued(add)] == [handle.id for handle in handles[:2]]
    assert enqueued("shop.add") == enqueued(add)
    assert enqueued("nothing") == []


def test_of_the_input_only_what_is_named_must_match(enqueued: Any) -> None:
    first, second = enqueue(add(a=1, b=2)), enqueue(add(a=1, b=3))
    assert [state.id for state in enqueued(add, a=1)] == [first.id, second.id]
    assert [state.id for state in enqueued(add, a=1, b=3)] == [second.id]
    assert enqueued(add, a=2) == []
    assert enqueued(add, c=None) == []
    assert [state.id for state in enqueued(b=2)] == [first.id]


def test_ended_works_are_included_unless_a_status_is_given(enqueued: Any, drain: Any) -> None:
    ended, scheduled = enqueue(add(a=1, b=2)), enqueue(add(a=3, b=4), delay=60)
    due = enqueue(notify(order_id=1))
    drain(limit=1)
    assert [state.id for state in enqueued(status="success")] == [ended.id]
    assert [state.id for state in enqueued(status=Status.PENDING)] == [due.id]
    assert [state.id for state in enqueued(status=["pending", "scheduled"])] == [scheduled.id, due.id]
    assert [state.id for state in enqueued(status=set(Status) - Status.terminal)] == [scheduled.id, due.id]
    assert [state.id for state in enqueued(add, status="scheduled", a=3)] == [scheduled.id]
    assert enqueued(add, status="pending") == []


def test_an_unknown_status_is_refused(enqueued: Any) -> None:
    with pytest.raises(ValueError, match="status=") as refused:
        enqueued(status="pendng")
    assert str(refused.value) == (
        "expected status= to be one of blocked, scheduled, pending, running, success, dead, cancelled, "
        "got: 'pendng'. Did you mean 'pending'?"
    )


@pytest.mark.parametrize("name", ["assert_enqueued", "assert_not_enqueued"])
def test_assertions_refuse_what_no_work_can_be(name: str, request: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(registry, "_types", {"shop.add": add, "shop.pay": pay})
    assertion = request.getfixturevalue(name)
    with pytest.raises(UnknownWorkType, match=r"^no work is named 'shop\.ad'\. Did you mean 'shop\.add'\?"):
        assertion("shop.ad")
    with pytest.raises(TypeError) as refused:
        assertion(pay, order=7)
    assert str(refused.value) == (
        "expected one of the inputs of shop.pay (order_id), got: 'order'. Did you mean 'order_id'?"
    )
    with pytest.raises(TypeError, match=r"^no type of work has an input 'order_idd'\. Did you mean 'order_i"):
        assertion(order_idd=7)
    with pytest.raises(TypeError, match=r"^expected a type of work or its name, as in assert_enqueued\("):
        assertion(add(a=1, b=2))


def test_a_type_that_takes_any_input_has_no_unknown_one(assert_enqueued: Any) -> None:
    @work(name="t.assertions.anything")
    def anything(**values: int) -> None: ...

    enqueue(anything(a=1))
    assert_enqueued(anything, a=1)
    with pytest.raises(AssertionError):
        assert_enqueued(anything, b=1)


def test_gates_can_be_asserted_on(assert_enqueued: Any, assert_not_enqueued: Any) -> None:
    assert_not_enqueued(GATE_TYPE)
    gate = enqueue(dependency(["never"], [add(a=1, b=2)]))
    assert assert_enqueued(GATE_TYPE).id == gate.id


def test_a_row_that_cannot_be_read_matches_no_input(enqueued: Any) -> None:
    handle = enqueue(add(a=1, b=2))
    Work.objects.filter(id=handle.id).update(input="garbage")
    assert enqueued(add, a=1) == []
    assert len(enqueued(add)) == 1


def test_what_waits_for_the_commit_counts(assert_enqueued: Any) -> None:
    with transaction.atomic():
        handle = enqueue(add(a=1, b=2), on_commit=True)
    assert assert_enqueued(add).id == handle.id


def test_the_newest_match_is_returned(assert_enqueued: Any) -> None:
    enqueue(add(a=1, b=2), id="zz")
    newest = enqueue(add(a=1, b=2), priority=4, id="aa")
    state = assert_enqueued(add, a=1)
    assert (state.id, state.priority) == (newest.id, 4)


def test_a_missing_work_is_told_with_what_there_is(assert_enqueued: Any) -> None:
    with pytest.raises(AssertionError) as raised:
        assert_enqueued(add, a=1)
    assert str(raised.value) == "expected a work shop.add(a=1) to be queued; nothing is."
    enqueue(add(a=2, b=2))
    enqueue(notify(order_id=7))
    with pytest.raises(AssertionError) as raised:
        assert_enqueued("shop.add", a="one")
    assert str(raised.value) == (
        "expected a work shop.add(a='one') to be queued; "
        'there is: shop.add {"a":2,"b":2}; shop.notify {"order_id":7}.'
    )


def test_a_work_too_many_is_told_with_its_id(assert_not_enqueued: Any) -> None:
    assert_not_enqueued()
    handle = enqueue(add(a=2, b=2))
    assert_not_enqueued(add, a=1)
    assert_not_enqueued(notify)
    with pytest.raises(AssertionError) as raised:
        assert_not_enqueued(add, a=2)
    assert str(raised.value) == (
        f"expected no work shop.add(a=2) to be queued, but there are 1: {handle.id}."
    )
