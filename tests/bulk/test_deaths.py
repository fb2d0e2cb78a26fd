"""Whatever a work dies of, the fingerprint of its error is stored with it; and only while it is dead."""

from __future__ import annotations

import pytest

from django_ayework import Abort, Context, Retry, cancel, dependency, enqueue, retry, work
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Work
from django_ayework.rules.causes import fingerprint
from django_ayework.store import claims
from django_ayework.store.database import clock
from django_ayework.testing import drain, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db
ONCE = Retry(attempts=1)


def dead(id: str, reason: str) -> Work:
    return Work.objects.get(id=id, status="dead", reason=reason)


def assert_has_its_cause(work: Work) -> None:
    assert work.error
    assert work.cause == fingerprint(work.error)


def test_of_its_last_attempt():
    handles = [
        enqueue(fail(message=f"no order {number}"), retry=Retry(attempts=2, base=1)) for number in (1, 2)
    ]
    drain(raises=False)
    assert {work.cause for work in Work.objects.all()} == {""}
    time_travel(10)
    drain(raises=False)
    one, other = (dead(handle.id, "exhausted") for handle in handles)
    assert_has_its_cause(one)
    assert one.cause == other.cause


def test_of_giving_up():
    @work(name="t.gives_up")
    def gives_up() -> None:
        raise Abort("no such order")

    handle = enqueue(gives_up())
    drain(raises=False)
    assert_has_its_cause(dead(handle.id, "aborted"))


def test_of_its_deadline():
    handle = enqueue(add(a=1, b=2), expires=60)
    time_travel(61)
    drain(raises=False)
    assert_has_its_cause(dead(handle.id, "expired"))


def test_of_an_unknown_type():
    id = WorkFactory(type="t.gone", input="{}").id
    drain()
    time_travel(3700)
    drain(raises=False)
    assert_has_its_cause(dead(id, "unknown_type"))


def test_of_a_bad_input():
    handle = enqueue(add(a=1, b=2))
    Work.objects.filter(id=handle.id).update(input="garbage")
    drain(raises=False)
    assert_has_its_cause(dead(handle.id, "bad_input"))


def test_of_lost_leases():
    handle = enqueue(add(a=1, b=2), retry=ONCE)
    for _ in range(20):
        if Work.objects.get(id=handle.id).status == "dead":
            break
        time_travel(3600)
        now = clock.now()
        claims.claim("default", {"shop.add": 1}, 1, "gone", now, now)
        time_travel(3600)
        reclaim()
    assert_has_its_cause(dead(handle.id, "exhausted"))


def test_of_a_condition_that_cannot_be_met():
    failing = enqueue(fail(), retry=ONCE)
    gate = enqueue(dependency([failing], [add(a=1, b=2)]))
    drain(raises=False)
    assert_has_its_cause(dead(gate.id, "unsatisfiable"))


def test_of_a_timeout_of_its_gate():
    later = enqueue(add(a=1, b=2), delay=3600)
    gate = enqueue(dependency([later], [add(a=1, b=2)], timeout=60))
    time_travel(61)
    drain()
    assert_has_its_cause(dead(gate.id, "expired"))


def test_a_retry_removes_it():
    handle = enqueue(fail(), retry=ONCE)
    drain(raises=False)
    retry(handle.id)
    assert Work.objects.get(id=handle.id).cause == ""


def test_other_ends_have_none():
    @work(name="t.fails_once")
    def fails_once(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RuntimeError("once")

    handle, cancelled = enqueue(fails_once()), enqueue(add(a=1, b=2), delay=60)
    cancel(cancelled.id)
    drain(raises=False)
    time_travel(3600)
    drain()
    assert list(Work.objects.order_by("status").values_list("status", "cause")) == [
        ("cancelled", ""),
        ("success", ""),
    ]
    assert handle.result(timeout=0) is None
