"""The page's patterns that go on for a while: saga, approval, polling, recurring job."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from django_ayework import AlreadyCompleted, cancel, enqueue, enqueue_many, get_handle, retry
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Attempt, Work
from django_ayework.store import transitions
from django_ayework.testing import drain, now, running_worker, tick, time_travel
from django_ayework.testing.running import attempted
from django_ayework.worker.claimer import deliveries_of
from tests.patterns.kit import answer_lost, failing, only, run_for
from tests.races.rivals import claim_all, each, race

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
on_a_server_too = pytest.mark.vendors("sqlite", "postgresql")
A_DAY = 24 * 3600
DOWN = ConnectionError("nobody answers")


class TestSaga:
    """An order is placed in three systems, or in none."""

    section = "Saga"
    CANCELLED = ("cancelled", 5, 0, "")
    services = pytest.mark.parametrize("service", ["charge", "book_parcel"])

    @pytest.fixture
    def order(self, shop):
        return shop.order(cents=1990)

    @pytest.fixture
    def key(self, order):
        """The key of the order for the bank and the carrier."""
        return f"order-{order.pk}"

    @pytest.fixture
    def placed(self, key):
        return ("placed", 4, 1990, f"label-{key}")

    @pytest.fixture
    def left(self, shop, order, key):
        """What the order has come to: its state, the stock, the money taken, the parcel booked."""

        def look():
            order.article.refresh_from_db()
            taken, parcel = shop.services.charges.get(key, 0), shop.services.parcels.get(key, "")
            return shop.state_of(order), order.article.stock, taken, parcel

        return look

    def test_an_order_is_placed_by_one_saga(self, shop, order, left, placed):
        handle = shop.use()["handle"]
        again = enqueue_many([shop.works.place_order(order_id=order.pk) for _ in range(2)])
        drain()
        assert left() == placed
        ends = sorted(each.chain(timeout=0) for each in [handle, *again])
        assert ends == ["placed", "placed before", "placed before"]

    @services
    def test_a_refusal_undoes_what_came_before(self, shop, left, monkeypatch, service):
        monkeypatch.setattr(shop.services, service, failing(None, shop.services.Refused("no")))
        handle = shop.use()["handle"]
        drain()
        assert (left(), handle.chain(timeout=0)) == (self.CANCELLED, "cancelled")
        ran = set(Work.objects.values_list("type", flat=True))
        assert ("shop.refund_card" in ran) == (service == "book_parcel")

    def test_without_stock_nothing_begins(self, shop, order, left):
        shop.models.Article.objects.update(stock=0)
        handle = shop.use()["handle"]
        drain()
        assert (left(), handle.chain(timeout=0)) == (("sold out", 0, 0, ""), "sold out")

    @pytest.mark.parametrize(
        ("service", "times"), [("charge", 1), ("book_parcel", 1), ("book_parcel", 4)], ids=str
    )
    def test_a_lost_answer_neither_repeats_nor_keeps_anything(
        self, shop, left, placed, monkeypatch, service, times
    ):
        monkeypatch.setattr(shop.services, service, answer_lost(getattr(shop.services, service), times))
        shop.use()
        run_for(600, raises=False)
        assert left() == (placed if times == 1 else self.CANCELLED)

    @services
    def test_trouble_that_does_not_end_undoes_the_step_itself_as_well(
        self, shop, key, left, monkeypatch, service
    ):
        real = getattr(shop.services, service)
        monkeypatch.setattr(shop.services, service, failing(real, DOWN))
        handle = shop.use()["handle"]
        run_for(600, raises=False)
        assert (left(), handle.chain(timeout=0)) == (self.CANCELLED, "cancelled")
        real(*([key, 1990] if service == "charge" else [key]))
        assert left() == self.CANCELLED, "a worker that was cut off comes too late"

    @pytest.mark.parametrize("times", [1, 4], ids=["once", "in every attempt"])
    def test_a_worker_lost_after_the_charge_charges_once_or_gives_up(self, shop, key, left, placed, times):
        shop.use()
        drain(limit=1)
        for _ in range(times):
            [row] = claim_all(lease=30).values()
            assert row.type == "shop.charge_card"
            shop.services.charge(key, 1990)
            time_travel(31)
            assert len(reclaim()) == 1
        drain()
        assert left() == (placed if times == 1 else self.CANCELLED)

    def test_an_undoing_step_that_died_is_retried_and_the_chain_goes_on(self, shop, left, monkeypatch):
        refund = shop.services.refund
        monkeypatch.setattr(shop.services, "book_parcel", failing(None, shop.services.Refused("no")))
        monkeypatch.setattr(shop.services, "refund", failing(refund, DOWN))
        handle = shop.use()["handle"]
        run_for(A_DAY, step=3600, raises=False)
        assert only(shop.works.refund_card).status == "scheduled", "it tries for a day at least"
        run_for(2 * A_DAY, step=3600, raises=False)
        dead = only(shop.works.refund_card)
        assert (dead.status, left()) == ("dead", ("placing", 4, 1990, ""))
        monkeypatch.setattr(shop.services, "refund", refund)
        retry(dead.id)
        drain()
        assert (left(), handle.chain(timeout=0)) == (self.CANCELLED, "cancelled")

    def test_a_cancelled_step_stops_the_saga_until_it_is_retried(self, shop, left, placed):
        shop.use()
        drain(limit=2)
        step = only(shop.works.book_parcel)
        cancel(step.id)
        run_for(600)
        assert left() == ("placing", 4, 1990, "")
        retry(step.id)
        drain()
        assert left() == placed

    @on_a_server_too
    @pytest.mark.django_db(transaction=True)
    def test_a_real_worker_leaves_nothing_half_done(self, shop, monkeypatch):
        """Twelve orders of eight articles; some cards and some addresses are refused."""

        def refuse(service, orders):
            real, keys = getattr(shop.services, service), {f"order-{order.pk}" for order in orders}

            def call(key, *values):
                if key in keys:
                    raise shop.services.Refused("no")
                real(key, *values)

            monkeypatch.setattr(shop.services, service, call)

        article = shop.models.Article.objects.create(stock=8)
        orders = [shop.order(article=article, cents=number) for number in range(1, 13)]
        refuse("charge", orders[::3])
        refuse("book_parcel", orders[1::4])
        with running_worker(concurrency=4):
            handles = [enqueue(shop.works.place_order(order_id=order.pk)) for order in orders]
            ends = [get_handle(handle.id).chain(timeout=40) for handle in handles]
        assert [shop.state_of(order) for order in orders] == ends
        placed = {f"order-{order.pk}" for order, end in zip(orders, ends, strict=True) if end == "placed"}
        article.refresh_from_db()
        assert article.stock == 8 - len(placed)
        assert {key for key, cents in shop.services.charges.items() if cents} == placed
        assert {key for key, label in shop.services.parcels.items() if label} == placed


class TestApproval:
    """A person decides, or the clock does."""

    section = "Approval"

    @pytest.fixture
    def order(self, shop):
        """An order whose approval has been asked for."""
        order = shop.order()
        shop.use()
        return order

    @pytest.fixture
    def answer(self, shop, order, mailoutbox):
        """The state of the order, and what was mailed."""
        return lambda: (shop.state_of(order), [mail.body for mail in mailoutbox])

    def test_an_early_decision_counts_and_an_approval_is_asked_for_once(self, shop, order, answer):
        shop.works.ask_for_approval(order.pk)
        assert shop.works.decide(order.pk, "approved")
        shop.works.ask_for_approval(order.pk)
        assert Work.objects.filter(type="shop.reject_undecided").count() == 1
        time_travel(2 * A_DAY)
        drain()
        assert answer() == ("approved", ["It is approved."])
        state = get_handle(f"approval-{order.pk}").state()
        assert (state.status, state.completed_by) == ("success", None)

    @pytest.mark.parametrize("first", ["a person", "the clock"])
    def test_a_second_decision_changes_nothing_be_the_first_a_persons_or_the_clocks_after_two_days(
        self, shop, order, answer, first
    ):
        if first == "a person":
            assert shop.works.decide(order.pk, "rejected")
        else:
            time_travel(2 * A_DAY - 60)
            assert drain().ran == 0
            time_travel(60)
        drain()
        assert answer() == ("rejected", ["It is rejected."])
        assert not shop.works.decide(order.pk, "approved")
        drain()
        assert answer() == ("rejected", ["It is rejected."])

    def test_a_decision_that_fails_leaves_everything_as_it_was(self, shop, order, monkeypatch):
        monkeypatch.setattr(shop.works, "mail_answer", failing(None, ValueError("no such mail")))
        with pytest.raises(ValueError, match="no such mail"):
            shop.works.decide(order.pk, "approved")
        assert shop.state_of(order) == "asked"
        assert get_handle(f"approval-{order.pk}").state().status == "scheduled"

    @pytest.mark.parametrize("decided", [False, True])
    def test_a_dead_rejection_is_retried_and_may_be_decided_in_the_same_transaction(
        self, shop, order, answer, monkeypatch, decided
    ):
        with monkeypatch.context() as patch:
            patch.setattr(shop.works, "mail_answer", failing(None, ValueError("no such mail")))
            time_travel(2 * A_DAY)
            run_for(600, raises=False)
        dead = only(shop.works.reject_undecided)
        assert (dead.status, shop.state_of(order)) == ("dead", "asked")
        with pytest.raises(AlreadyCompleted):
            shop.works.decide(order.pk, "approved")
        with transaction.atomic():
            retry(dead.id)
            assert not decided or shop.works.decide(order.pk, "approved")
        drain()
        end = "approved" if decided else "rejected"
        assert answer() == (end, [f"It is {end}."])

    def test_a_dead_mail_is_retried_without_touching_the_answer(self, shop, order, answer, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(shop.works, "send_mail", failing(None, ConnectionError("no mail today")))
            shop.works.decide(order.pk, "approved")
            run_for(600, raises=False)
        retry(only(shop.works.mail_answer, status="dead").id)
        drain()
        assert answer() == ("approved", ["It is approved."])

    @on_a_server_too
    @pytest.mark.django_db(transaction=True)
    def test_a_decision_at_the_last_second_and_the_clock_agree_on_one_answer(self, shop, mailoutbox):
        pks = [shop.order().pk for _ in range(15)]
        for pk in pks:
            shop.works.ask_for_approval(pk)
        time_travel(2 * A_DAY)
        transitions.make_pending(now(), len(pks))
        due = {delivery.row.id: delivery for delivery in deliveries_of(list(claim_all().values()))}
        counted = []
        race(
            len(pks),
            each(lambda pk: counted.append(shop.works.decide(pk, "approved")), pks),
            each(lambda pk: attempted([due[f"approval-{pk}"]]), pks),
        )
        drain()
        answers = [shop.models.Order.objects.get(pk=pk).state for pk in pks]
        assert answers == ["approved" if decided else "rejected" for decided in counted]
        assert sorted(mail.body for mail in mailoutbox) == sorted(f"It is {answer}." for answer in answers)
        assert not Attempt.objects.exclude(outcome="revoked").exists(), "nobody waited for the other in vain"


class TestPolling:
    """A label that the carrier prints when it likes."""

    section = "Polling"

    @pytest.fixture(autouse=True)
    def order(self, shop):
        return shop.order()

    @pytest.fixture
    def label(self, order):
        return lambda: order.refresh_from_db() or order.label

    @pytest.fixture
    def find_label(self, shop, monkeypatch):
        """There is no label yet; return a function that replaces the answer."""
        real = shop.services.find_label

        def answer(find=real):
            monkeypatch.setattr(shop.services, "find_label", find)

        answer(lambda key: None)
        return answer

    @on_a_server_too
    def test_it_asks_until_the_label_is_there(self, shop, order, label, find_label):
        handle = shop.use()["handle"]
        run_for(600)
        poll = only(shop.works.fetch_label)
        assert (poll.status, poll.attempt, label()) == ("scheduled", 0, "")
        find_label()
        run_for(60)
        assert handle.chain(timeout=0) == label() == f"label-order-{order.pk}"

    def test_a_carrier_that_cannot_be_reached_uses_no_attempt(self, shop, label, monkeypatch):
        monkeypatch.setattr(shop.services, "find_label", failing(shop.services.find_label, DOWN, times=10))
        handle = shop.use()["handle"]
        run_for(12 * 300, step=300)
        assert handle.chain(timeout=0) == label() != ""

    def test_real_failures_add_up_however_many_polls_lie_between(self, shop, find_label):
        answers = iter([None, KeyError, None, None, KeyError, None, None, None, KeyError])

        def fail_at_times(key):
            if answer := next(answers):
                raise answer("label")

        find_label(fail_at_times)
        shop.use()
        run_for(3600, raises=False)
        poll = only(shop.works.fetch_label)
        assert (poll.status, poll.reason, len(list(answers))) == ("dead", "exhausted", 0)

    def test_an_answer_that_is_lost_books_no_second_parcel(self, shop, order, label, monkeypatch):
        monkeypatch.setattr(shop.services, "book_parcel", answer_lost(shop.services.book_parcel, times=1))
        shop.use()
        run_for(120, raises=False)
        assert list(shop.services.parcels) == [f"order-{order.pk}"]
        assert label()

    def test_after_a_day_it_is_dead_and_a_retry_asks_for_another_day(self, shop, label, find_label):
        handle = shop.use()["handle"]
        run_for(A_DAY + 3 * 3600, step=3 * 3600)
        poll = only(shop.works.fetch_label)
        assert (poll.status, poll.reason) == ("dead", "expired")
        retry(poll.id)
        run_for(A_DAY - 4 * 3600, step=4 * 3600)
        assert only(shop.works.fetch_label).status == "scheduled"
        find_label()
        run_for(60)
        assert handle.chain(timeout=0) == label() != ""


class TestRecurring:
    """A schedule that queues each run."""

    section = "Recurring"

    @pytest.fixture(autouse=True)
    def undeclared(self, shop):
        """The schedule is gone after the test."""
        yield
        shop.works.hourly.cancel()

    def an_hour_later(self):
        """Let the next occurrence come; return how many runs it has queued."""
        time_travel(3600)
        return tick()

    @on_a_server_too
    def test_each_run_cancels_what_is_stale(self, shop):
        stale, fresh = shop.order(), shop.order()
        shop.models.Order.objects.filter(pk=stale.pk).update(created=timezone.now() - timedelta(days=2))
        assert shop.use()["report"].succeeded == 1
        assert (shop.state_of(stale), shop.state_of(fresh)) == ("cancelled", "new")

    def test_an_occurrence_is_skipped_while_the_run_before_has_not_ended(self, shop):
        shop.use()
        assert [self.an_hour_later() + tick() for _ in range(3)] == [1, 0, 0]
        assert drain().succeeded == 1
        assert self.an_hour_later() == 1
        drain()
        time_travel(5 * 3600)  # missed occurrences are one run
        assert tick() == 1
        assert drain().succeeded == 1

    def test_a_run_that_is_tried_again_skips_the_occurrences_meanwhile(self, shop, monkeypatch):
        tick()
        monkeypatch.setattr(shop.works, "timedelta", failing(timedelta, ValueError("not now"), times=1))
        self.an_hour_later()
        assert drain(raises=False).retried == 1
        assert self.an_hour_later() == 0
        run_for(60)
        assert Work.objects.filter(status="success").count() == 1
        assert self.an_hour_later() == 1

    def test_a_dead_run_delays_no_other_and_can_be_retried(self, shop, monkeypatch):
        tick()
        with monkeypatch.context() as patch:
            patch.setattr(shop.works, "Order", None)
            self.an_hour_later()
            run_for(600, raises=False)
        dead = Work.objects.get(status="dead")
        assert self.an_hour_later() == 1
        retry(dead.id)
        assert drain().succeeded == 2
