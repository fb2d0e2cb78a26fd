"""``testing.faults``: handlers meet the ends of workers, leases and databases in ``drain()``."""

from typing import Any

import pytest
from django.db import OperationalError, transaction

from django_ayework import BatchItem, Context, Retry, UnknownWorkType, batch_work, enqueue, work
from django_ayework.models import Attempt
from django_ayework.signals import work_succeeded
from django_ayework.testing import drain, faults, time_travel
from tests.app.models import Order
from tests.app.works import add
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db


@pytest.fixture(params=[False, True], ids=["test case", "transaction test case"])
def database(request):
    """A test within a transaction, and one that commits."""
    request.getfixturevalue("transactional_db" if request.param else "db")


@work(name="faults.careless")
def careless(reference: str) -> None:
    Order.objects.create(reference=reference)


@work(name="faults.atomic", atomic=True)
def careful(reference: str) -> None:
    Order.objects.create(reference=reference)


@work(name="faults.staged")
def staged(ctx: Context, reference: str) -> Any:
    with ctx.prepare():
        pass
    with ctx.complete():
        Order.objects.create(reference=reference)
        return ctx.result(reference)


@work(name="faults.stages")
def stages(ctx: Context) -> Any:
    with ctx.prepare():
        Order.objects.create(reference="prepared")
    Order.objects.create(reference="between")
    with ctx.complete():
        Order.objects.create(reference="completed")


@work(name="faults.async_stages")
async def async_stages(ctx: Context) -> Any:
    await ctx.aprepare(lambda: Order.objects.create(reference="prepared") and None)
    await Order.objects.acreate(reference="between")
    await ctx.acomplete(lambda: Order.objects.create(reference="completed") and None)
    await Order.objects.acreate(reference="after")


@work(name="faults.durable")
def durable() -> None:
    with transaction.atomic(durable=True):
        Order.objects.create(reference="durable")


@batch_work(name="faults.batch")
def batch(items: list[BatchItem[str]]) -> list[None]:
    Order.objects.bulk_create(Order(reference=item.input) for item in items)
    return [None for _ in items]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(("type", "orders"), [(careless, 2), (careful, 1), (staged, 1)], ids=str)
@pytest.mark.parametrize(
    ("fault", "outcomes"),
    [(faults.deliver_twice, ["lost"]), pytest.param(faults.lose_lease, None, marks=on_sqlite)],
)
def test_a_work_that_runs_twice_shows_whether_its_handler_is_idempotent(type, orders, fault, outcomes):
    handle = enqueue(type(reference="a"))
    with fault(type) as met:
        report = drain()
    assert met == [handle.id]
    assert (report.ran, report.succeeded) == (2, 1)
    assert Order.objects.count() == orders
    assert handle.state().attempt == 2
    assert outcomes in (None, [each.outcome for each in Attempt.objects.filter(work_id=handle.id)])


def references():
    return sorted(Order.objects.values_list("reference", flat=True))


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(("type", "after"), [(stages, []), (async_stages, ["after"])], ids=str)
def test_a_death_before_the_commit_undoes_only_the_transaction_of_the_outcome(type, after):
    handle = enqueue(type())
    with faults.deliver_twice():
        report = drain()
    assert references() == [*after, "between", "between", "completed", "prepared", "prepared"]
    assert (report.ran, report.succeeded, handle.state().attempt) == (2, 1, 2)
    assert Attempt.objects.get(work_id=handle.id).outcome == "lost"


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(("fault", "rows"), [(faults.deliver_twice, 2), (faults.die_after_commit, 1)])
def test_a_durable_block_is_committed_within_a_fault(fault, rows):
    enqueue(durable())
    with fault():
        assert drain().succeeded == 1
    assert references() == ["durable"] * rows


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("is_atomic", [False, True])
def test_a_first_attempt_that_fails_is_not_lost(is_atomic):
    @work(name="faults.fails_first", atomic=is_atomic)
    def fails_first(ctx: Context) -> None:
        ctx.progress(1, total=2)
        if ctx.attempt == 1:
            raise ValueError("the first attempt failed")

    handle = enqueue(fails_first())
    with pytest.raises(ValueError, match="first attempt"), faults.deliver_twice():
        drain()
    assert (handle.state().status, handle.state().attempt) == ("scheduled", 1)
    assert handle.state().progress is not None
    time_travel(3600)
    with faults.deliver_twice() as met:
        assert drain().ran == 2
    assert met == [handle.id]
    outcomes = Attempt.objects.filter(work_id=handle.id).order_by("number").values_list("outcome", flat=True)
    assert list(outcomes) == ["failed", "lost"]


def test_the_fault_happens_in_the_first_attempt_that_succeeds():
    @work(name="faults.fails_twice", retry=Retry(attempts=4, base=0))
    def fails_twice(ctx: Context) -> None:
        Order.objects.create(reference=str(ctx.attempt))
        if ctx.attempt < 3:
            raise ValueError("no luck")

    enqueue(fails_twice())
    with faults.deliver_twice():
        drain()
    assert references() == ["1", "2", "3", "4"]
    enqueue(fails_twice(), retry=Retry(attempts=1))
    with pytest.raises(AssertionError, match="or their attempts failed"), faults.deliver_twice():
        drain(raises=False)


def test_the_items_of_a_batch_are_delivered_twice():
    handles = [enqueue(batch(str(number))) for number in range(3)]
    with faults.deliver_twice("faults.batch") as met:
        drain()
    assert sorted(met) == sorted(handle.id for handle in handles)
    assert Order.objects.count() == 6


def test_other_types_meet_nothing_and_only_the_first_attempt_does():
    enqueue(careless(reference="a"))
    enqueue(add(a=1, b=2))
    with faults.deliver_twice(add) as met:
        assert drain().ran == 3
        enqueue(add(a=1, b=2))
        assert drain().ran == 2
    assert len(met) == 2
    enqueue(add(a=1, b=2))
    assert drain().ran == 1


def test_a_work_with_one_attempt_is_dead_when_its_worker_dies():
    handle = enqueue(careless(reference="a"), retry=Retry(attempts=1))
    with faults.deliver_twice():
        report = drain()
    assert (handle.state().status, handle.state().reason) == ("dead", "exhausted")
    assert (report.ran, report.dead) == (1, 1)


@pytest.mark.usefixtures("database")
def test_after_the_commit_callbacks_and_signals_are_lost_and_the_database_is_complete():
    heard = []

    @work(name="faults.calls_back")
    def calls_back(ctx: Context) -> Any:
        with transaction.atomic():
            transaction.on_commit(lambda: heard.append("callback"))
            Order.objects.create(reference="a")
        return ctx.queue([add(a=1, b=2)])

    def hear(sender, **facts):
        heard.append(sender)

    work_succeeded.connect(hear)
    try:
        handle = enqueue(calls_back())
        with faults.die_after_commit(calls_back):
            drain(limit=1)
        assert heard == []
        assert handle.state().status == "success"
        assert Order.objects.count() == 1
        drain()
        assert heard == ["shop.add"]
        assert handle.group() == 3
    finally:
        work_succeeded.disconnect(hear)


def test_a_handler_sees_that_its_lease_was_lost():
    seen = []

    @work(name="faults.watchful")
    def watchful(ctx: Context) -> None:
        seen.append(ctx.signal.reason)

    enqueue(watchful())
    with faults.lose_lease():
        drain()
    assert seen == ["taken_by_another_worker", None]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("type", [careless, careful], ids=str)
@pytest.mark.parametrize("after", [0, 1])
def test_statements_of_the_handler_fail_when_the_database_is_lost(type, after):
    @work(name="faults.two_orders", atomic=type is careful)
    def two_orders() -> None:
        Order.objects.create(reference="first")
        Order.objects.create(reference="second")

    handle = enqueue(two_orders())
    with faults.lose_database(two_orders, after=after):
        drain(raises=False)
    assert (handle.state().status, handle.state().attempt) == ("scheduled", 1)
    assert "faults.lose_database" in Attempt.objects.get(work_id=handle.id).error
    assert Order.objects.count() == 0 or (type is careless and after == 1)
    enqueue(careless(reference="a"))
    with pytest.raises(OperationalError, match="lost"), faults.lose_database():
        drain()


@pytest.mark.usefixtures("database")
def test_a_database_that_is_lost_after_more_statements_than_an_attempt_has_fails_the_test():
    enqueue(careless(reference="a"))
    with (
        pytest.raises(AssertionError, match=r"\(after=50\) failed no statement: .* at most 1 statement\."),
        faults.lose_database(after=50),
    ):
        drain()


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("type", [careless, careful], ids=str)
def test_a_last_attempt_is_not_made_again_after_its_worker_has_died(type):
    """The beginning was committed, whatever becomes of the transaction of the handler."""
    handle = enqueue(type(reference="a"), retry=Retry(attempts=1))
    with faults.deliver_twice():
        drain(raises=False)
    assert (handle.state().status, handle.state().error) == ("dead", "worker lost")


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize(
    ("fault", "reason"), [(faults.lose_database, "OperationalError"), (faults.lose_lease, "worker lost")]
)
def test_a_fault_uses_up_a_last_attempt(fault, reason):
    handle = enqueue(careless(reference="a"), retry=Retry(attempts=1))
    with fault():
        drain(raises=False)
    assert handle.state().status == "dead"
    assert reason in handle.state().error


def test_a_block_in_which_no_work_meets_the_fault_fails_and_a_name_that_no_type_has_is_refused():
    met_none = r"faults.deliver_twice\(\) met no work of shop.add: drain\(\) has run none"
    with pytest.raises(AssertionError, match=met_none), faults.deliver_twice(add):
        drain()
    with pytest.raises(UnknownWorkType, match=r"Did you mean 'shop.add'"), faults.lose_lease("shop.ad"):
        pass
