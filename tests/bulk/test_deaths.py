"""Whatever a work dies of, the fingerprint of its error is stored with it; and only while it is dead."""

import pytest

from django_ayework import Abort, Context, Handle, Retry, cancel, dependency, enqueue, retry, work
from django_ayework.models import Work
from django_ayework.rules.causes import fingerprint
from django_ayework.testing import drain, faults, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.app.works import add, fail
from tests.bulk.kit import ONCE

pytestmark = pytest.mark.django_db


def give_up() -> None:
    raise Abort("no such order")


def lose_leases() -> str:
    id = enqueue(add(a=1, b=2), retry=ONCE).id
    with faults.deliver_twice():
        drain(raises=False)
    return id


def gate(on: Handle, **options) -> str:
    return enqueue(dependency([on], [add(a=1, b=2)], **options)).id


#: By what a work dies of: its reason, how it is made, and the seconds until then.
DEATHS = {
    "its last attempt": ("exhausted", lambda: enqueue(fail(), retry=Retry(attempts=2, base=1)).id, 10),
    "giving up": ("aborted", lambda: enqueue(work(name="t.gives_up")(give_up)()).id, 0),
    "its deadline": ("expired", lambda: enqueue(add(a=1, b=2), delay=50, expires=60).id, 61),
    "an unknown type": ("unknown_type", lambda: WorkFactory(type="t.gone", input="{}").id, 3700),
    "a bad input": ("bad_input", lambda: WorkFactory(input="garbage").id, 0),
    "lost leases": ("exhausted", lose_leases, 0),
    "a condition that cannot be met": ("unsatisfiable", lambda: gate(enqueue(fail(), retry=ONCE)), 0),
    "a timeout of its gate": ("expired", lambda: gate(enqueue(add(a=1, b=2), delay=3600), timeout=60), 61),
}


@pytest.mark.parametrize(("reason", "make", "seconds"), DEATHS.values(), ids=DEATHS)
def test_a_work_has_its_cause_once_it_has_died(reason, make, seconds):
    id = make()
    drain(raises=False)
    if seconds:
        assert Work.objects.get(id=id).cause == ""
        time_travel(seconds)
        drain(raises=False)
    work = Work.objects.get(id=id, status="dead", reason=reason)
    assert work.error
    assert work.cause == fingerprint(work.error)


def test_works_that_die_alike_have_one_cause_until_they_are_retried():
    ids = [enqueue(fail(message=f"no order {number}"), retry=ONCE).id for number in (1, 2)]
    drain(raises=False)
    one, other = Work.objects.values_list("cause", flat=True)
    assert one == other != ""
    retry(ids[0])
    assert Work.objects.get(id=ids[0]).cause == ""


def test_other_ends_have_none():
    @work(name="t.fails_once")
    def fails_once(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RuntimeError("once")

    enqueue(fails_once())
    cancel(enqueue(add(a=1, b=2), delay=60).id)
    drain(raises=False)
    time_travel(3600)
    drain()
    ends = Work.objects.order_by("status").values_list("status", "cause")
    assert list(ends) == [("cancelled", ""), ("success", "")]
