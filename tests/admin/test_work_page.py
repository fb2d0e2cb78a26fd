"""The page of a work."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.utils import quote

from django_ayework import Retry, enqueue, enqueue_many, work
from django_ayework.admin.pages import SHOWN, readable
from django_ayework.models import Work
from django_ayework.rules.codec import RichJSON
from django_ayework.rules.states import Status
from django_ayework.store.clock import clock
from django_ayework.testing import drain, time_travel
from django_ayework.testing.factories import AttemptFactory, WorkFactory
from example_project.audit.models import Audit
from tests.admin.conftest import Page
from tests.admin.kit import address, die
from tests.app.models import Order
from tests.app.works import add, fail, pay

pytestmark = pytest.mark.django_db
WORK = "work_change"


@work(name="tests.echo")
def echo(value: object) -> object:
    return value


def test_input_and_result_are_laid_out(page: Page) -> None:
    handle = enqueue(echo(value={"price": Decimal("4.50"), "at": datetime(2026, 1, 2, tzinfo=UTC)}))
    drain()
    shown = page(WORK, handle.id)
    assert shown.count("&quot;price&quot;: &quot;4.50&quot;") == 2
    assert "&quot;at&quot;: &quot;2026-01-02 00:00:00+00:00&quot;" in shown
    assert "$ayework" not in shown


def test_what_cannot_be_decoded_is_shown_as_it_is_stored(page: Page) -> None:
    broken = WorkFactory(input="{not json", result='{"$ayework":"no-such-tag","value":1}')
    shown = page(WORK, broken.id)
    assert "{not json" in shown
    assert "no-such-tag" in shown


def test_keys_that_are_no_texts_can_be_read() -> None:
    assert readable(RichJSON().encode({(1, 2): {3}}), RichJSON()) == "{(1, 2): {3}}"


def test_lone_surrogates_do_not_break_the_page(page: Page) -> None:
    handle = enqueue(echo(value="broken \ud800 text"))
    assert "broken \\ud800 text" in page(WORK, handle.id)


def test_a_long_value_is_cut_and_its_length_told(page: Page) -> None:
    handle = enqueue(echo(value="x" * (SHOWN + 5000)))
    value = readable(Work.objects.get().input, RichJSON())
    shown = page(WORK, handle.id)
    assert "x" * (SHOWN - 100) in shown
    assert "x" * SHOWN not in shown
    assert f"The first {SHOWN} of {len(value)} characters" in shown


def test_a_dead_work_shows_every_attempt_with_its_traceback(page: Page) -> None:
    shown = page(WORK, die("no luck").id)
    assert "exhausted" in shown
    assert shown.count('<details class="ayework-error"><summary>RuntimeError: no luck</summary>') == 3
    assert "raise RuntimeError(message)" in shown
    assert "3 / 3" in shown


def test_of_many_attempts_the_last_are_shown(page: Page) -> None:
    deferring = WorkFactory()
    for number in range(60):
        AttemptFactory(work_id=deferring.id, number=number, error=f"try {number}.")
    shown = page(WORK, deferring.id)
    assert "try 59." in shown
    assert "try 10." in shown
    assert "try 9." not in shown
    assert "The last 50 attempts." in shown


def test_options_are_told_in_words(page: Page) -> None:
    retry = Retry(attempts=5, base=90, factor=3, max=7200, jitter=0.25)
    handle = enqueue(add(a=1, b=2), retry=retry, timeout=0.5, expires=86400)
    shown = page(WORK, handle.id)
    assert "5 attempts; the first wait is 1 min 30 s, each next one 3 times as long, at most 2 h" in shown
    assert "25 %" in shown
    assert ">500 ms<" in shown
    assert ">1 d<" in shown


def test_a_work_links_to_the_page_of_what_it_is_about(page: Page) -> None:
    audit = Audit.objects.create()
    handle = enqueue(add(a=1, b=2), about=audit)
    assert f'<a href="/admin/audit/audit/{audit.pk}/change/">audit.audit:{audit.pk}</a>' in page(
        WORK, handle.id
    )


def test_what_has_no_page_or_is_not_for_the_reader_is_named_without_a_link(page: Page, viewer: Any) -> None:
    order, audit = Order.objects.create(reference="A"), Audit.objects.create()
    unregistered = enqueue(pay(order_id=order.pk), about=order)
    private = enqueue(add(a=1, b=2), about=audit)
    gone = WorkFactory(about_type="removed.thing", about_id="3")
    assert f"<dd>shop.order:{order.pk}</dd>" in page(WORK, unregistered.id)
    assert "<dd>removed.thing:3</dd>" in page(WORK, gone.id)
    shown = viewer.get(address(WORK, private.id)).content.decode()
    assert f"<dd>audit.audit:{audit.pk}</dd>" in shown


def test_a_member_links_to_its_group(page: Page) -> None:
    first, second = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    assert f'href="{address("group_change", first.id)}"' in page(WORK, second.id)


def test_whoever_may_not_see_groups_gets_no_link_to_them(client_with: Any) -> None:
    first, second = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    shown = client_with("view_work").get(address(WORK, second.id)).content.decode()
    assert first.id in shown
    assert address("group_change", first.id) not in shown


def test_ids_of_all_kinds_have_a_page(page: Page) -> None:
    for id in ("a/b", "add", "_2F", "ünï-✓", "100%", "a?b=c#d", '"quoted"', "retry/"):
        enqueue(add(a=1, b=2), id=id)
        assert Work.objects.get(id=id).type in page(WORK, quote(id))


def test_an_unknown_id_leads_back_with_a_message(operator: Any) -> None:
    response = operator.get(address(WORK, "missing"), follow=True)
    assert "missing" in response.content.decode()
    assert response.redirect_chain


HOSTILE = "<script>alert('x')</script>&\"'"


def test_nothing_that_came_from_outside_is_markup(operator: Any) -> None:
    hostile = WorkFactory(
        id="<script>alert('x')</script>",
        type=HOSTILE,
        queue=HOSTILE,
        status=Status.DEAD,
        reason="<script>x",
        fairness=HOSTILE,
        input=HOSTILE,
        result=HOSTILE,
        error=HOSTILE,
        progress=HOSTILE,
        options=HOSTILE,
        worker=HOSTILE,
        parent_id=HOSTILE,
        about_type=HOSTILE,
        about_id=HOSTILE,
        group_id=HOSTILE,
    )
    AttemptFactory(work_id=hostile.id, error=HOSTILE, traceback=HOSTILE, worker=HOSTILE)
    quoted = quote(hostile.id)
    pages = [
        address("work_changelist"),
        address("work_changelist", q=HOSTILE, status=HOSTILE, type=HOSTILE, group_id=HOSTILE),
        address("deadletter_changelist"),
        address("work_change", quoted),
        address("deadletter_change", quoted),
    ]
    for url in pages:
        response = operator.get(url)
        assert response.status_code == 200
        assert "<script>alert" not in response.content.decode()
        assert "<script>x" not in response.content.decode()
    assert "&lt;script&gt;alert(&#x27;x&#x27;)" in operator.get(pages[3]).content.decode()


def test_a_page_takes_a_bounded_number_of_queries(operator: Any, django_assert_max_num_queries: Any) -> None:
    handle = enqueue(fail())
    for _ in range(3):
        drain(raises=False)
        time_travel(60)
    clock.synchronise()  # done once a minute, so it is not counted here
    # session, user, work, who ended it, attempts, waiter, who waits for it
    with django_assert_max_num_queries(7):
        operator.get(address(WORK, handle.id))


def test_a_page_says_why_its_work_is_not_running(page: Page) -> None:
    handle = enqueue(add(a=1, b=2))
    shown = page(WORK, handle.id)
    assert "No worker is alive; start one with: manage.py ayework_worker" in shown
    assert shown.index(">Why<") < shown.index(">Work<")
    drain()
    assert "run by worker drain." in page(WORK, handle.id)


def test_the_page_of_a_pending_work_takes_a_bounded_number_of_queries(
    operator: Any, django_assert_max_num_queries: Any
) -> None:
    handles = enqueue_many([add(a=number, b=0) for number in range(50)])
    clock.synchronise()
    # session, user, work, controls, types of the queue (2), works ahead, workers, its last attempt, attempts,
    # waiter, who waits for it
    with django_assert_max_num_queries(12):
        operator.get(address(WORK, handles[-1].id))
