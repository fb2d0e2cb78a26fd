"""The page's approval: a person decides, or the clock does."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_ayework import AlreadyCompleted, get_handle, retry
from django_ayework.models import Attempt, Work
from django_ayework.store import transitions
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.running import attempted
from django_ayework.worker.claimer import deliveries_of
from tests.patterns.kit import failing, only, run_for
from tests.races.rivals import claim_all, race

pytestmark = pytest.mark.django_db
SECTION = "Approval"
TWO_DAYS = 2 * 24 * 3600


@pytest.fixture
def order(shop):
    """An order whose approval has been asked for."""
    order = shop.order()
    shop.use()
    return order


def told(mailoutbox) -> list[str]:
    return [mail.body for mail in mailoutbox]


def answer(shop, order, mailoutbox) -> tuple[str, list[str]]:
    return shop.state_of(order), told(mailoutbox)


def test_an_early_decision_counts_and_an_approval_is_asked_for_once(shop, order, mailoutbox):
    shop.works.ask_for_approval(order.pk)
    assert shop.works.decide(order.pk, "approved")
    shop.works.ask_for_approval(order.pk)
    assert Work.objects.filter(type="shop.reject_undecided").count() == 1
    time_travel(TWO_DAYS)
    drain()
    assert answer(shop, order, mailoutbox) == ("approved", ["It is approved."])
    state = get_handle(f"approval-{order.pk}").state()
    assert (state.status, state.completed_by) == ("success", None)


def test_without_a_decision_it_is_rejected_after_two_days(shop, order, mailoutbox):
    time_travel(TWO_DAYS - 60)
    assert drain().ran == 0
    time_travel(60)
    drain()
    assert answer(shop, order, mailoutbox) == ("rejected", ["It is rejected."])


@pytest.mark.parametrize("first", ["a person", "the clock"])
def test_a_second_decision_changes_nothing(shop, order, mailoutbox, first):
    if first == "a person":
        assert shop.works.decide(order.pk, "rejected")
    else:
        time_travel(TWO_DAYS)
    drain()
    assert not shop.works.decide(order.pk, "approved")
    drain()
    assert answer(shop, order, mailoutbox) == ("rejected", ["It is rejected."])


def test_a_decision_that_fails_leaves_everything_as_it_was(shop, order, monkeypatch):
    monkeypatch.setattr(shop.works, "mail_answer", failing(lambda: None, ValueError("no such mail")))
    with pytest.raises(ValueError, match="no such mail"):
        shop.works.decide(order.pk, "approved")
    assert shop.state_of(order) == "asked"
    assert get_handle(f"approval-{order.pk}").state().status == "scheduled"


@pytest.fixture
def dead(shop, order, monkeypatch):
    """The rejection has died, and its cause is mended."""
    mail_answer = shop.works.mail_answer
    monkeypatch.setattr(shop.works, "mail_answer", failing(mail_answer, ValueError("no such mail")))
    time_travel(TWO_DAYS)
    run_for(600, raises=False)
    monkeypatch.setattr(shop.works, "mail_answer", mail_answer)
    approval = only(shop.works.reject_undecided)
    assert (approval.status, shop.state_of(order)) == ("dead", "asked")
    with pytest.raises(AlreadyCompleted):
        shop.works.decide(order.pk, "approved")
    return approval


@pytest.mark.parametrize("decided", [False, True])
def test_a_dead_rejection_is_retried_and_may_be_decided_in_the_same_transaction(
    shop, order, dead, mailoutbox, decided
):
    with transaction.atomic():
        retry(dead.id)
        assert not decided or shop.works.decide(order.pk, "approved")
    drain()
    end = "approved" if decided else "rejected"
    assert answer(shop, order, mailoutbox) == (end, [f"It is {end}."])


def test_a_dead_mail_is_retried_without_touching_the_answer(shop, order, monkeypatch, mailoutbox):
    send_mail = shop.works.send_mail
    monkeypatch.setattr(shop.works, "send_mail", failing(send_mail, ConnectionError("no mail today")))
    shop.works.decide(order.pk, "approved")
    run_for(600, raises=False)
    monkeypatch.setattr(shop.works, "send_mail", send_mail)
    retry(only(shop.works.mail_answer, status="dead").id)
    drain()
    assert answer(shop, order, mailoutbox) == ("approved", ["It is approved."])


@pytest.mark.django_db(transaction=True)
def test_a_decision_at_the_last_second_and_the_clock_agree_on_one_answer(shop, mailoutbox):
    orders = [shop.order() for _ in range(30)]
    for order in orders:
        shop.works.ask_for_approval(order.pk)
    time_travel(TWO_DAYS)
    transitions.make_pending(now(), len(orders))
    due = {delivery.row.id: delivery for delivery in deliveries_of(list(claim_all().values()))}
    counted: dict[int, bool] = {}

    def decide(number: int) -> None:
        counted[number] = shop.works.decide(orders[number].pk, "approved")

    def come_due(number: int) -> None:
        attempted([due[f"approval-{orders[number].pk}"]])

    race(len(orders), decide, come_due)
    drain()
    answers = [shop.state_of(order) for order in orders]
    assert answers == ["approved" if counted[number] else "rejected" for number in range(len(orders))]
    assert sorted(told(mailoutbox)) == sorted(f"It is {answer}." for answer in answers)
    assert not Attempt.objects.exclude(outcome="revoked").exists(), "nobody waited for the other in vain"
