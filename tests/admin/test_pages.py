"""The pages of works, gates and groups."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client

from django_ayework import Count, Retry, dependency, enqueue, enqueue_many, work
from django_ayework.admin.pages import SHOWN, readable
from django_ayework.define.requests import GATE_TYPE
from django_ayework.define.types import Registry
from django_ayework.models import Work
from django_ayework.rules.codec import RichJSON
from django_ayework.rules.states import Status
from django_ayework.store.database import clock
from django_ayework.testing import drain, time_travel
from django_ayework.testing.factories import (
    AttemptFactory,
    EdgeFactory,
    GroupFactory,
    WaiterFactory,
    WorkFactory,
)
from example_project.audit.models import Audit
from tests.admin.conftest import Page
from tests.admin.kit import address, assert_hides, assert_shows, die, hide, ids_on
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


def test_values_that_json_cannot_show_are_shown_as_they_are(page: Page) -> None:
    handle = enqueue(echo(value="broken \ud800 text"))
    assert "broken \\ud800 text" in page(WORK, handle.id)
    shown = page(WORK, WorkFactory(input="{not json", result='{"$ayework":"no-such-tag","value":1}').id)
    assert_shows(shown, "{not json", "no-such-tag")
    assert readable(RichJSON().encode({(1, 2): {3}}), RichJSON()) == "{(1, 2): {3}}"


def test_a_long_value_is_cut_and_its_length_shown(page: Page) -> None:
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
    assert_shows(shown, "raise RuntimeError(message)", "3 / 3")


def test_of_many_attempts_the_last_are_shown(page: Page) -> None:
    deferring = WorkFactory()
    for number in range(60):
        AttemptFactory(work_id=deferring.id, number=number, error=f"try {number}.")
    shown = page(WORK, deferring.id)
    assert_shows(shown, "try 59.", "try 10.")
    assert "try 9." not in shown
    assert "The last 50 attempts." in shown


def test_options_are_shown_in_words(page: Page) -> None:
    retry = Retry(attempts=5, base=90, factor=3, max=7200, jitter=0.25)
    handle = enqueue(add(a=1, b=2), retry=retry, timeout=0.5, expires=86400, lease=45)
    shown = page(WORK, handle.id).split("Options as resolved")[1].split("</section>")[0]
    assert "5 attempts; the first wait is 1 min 30 s, each next one 3 times as long, at most 2 h" in shown
    assert_shows(shown, "25 %", ">500 ms<", ">1 d<", "45 s")


def test_a_work_links_to_the_page_of_what_it_is_about(page: Page) -> None:
    audit = Audit.objects.create()
    handle = enqueue(add(a=1, b=2), about=audit)
    link = f'<a href="/admin/audit/audit/{audit.pk}/change/">audit.audit:{audit.pk}</a>'
    assert link in page(WORK, handle.id)


def test_what_has_no_page_or_is_not_for_the_reader_is_named_without_a_link(page: Page, viewer: Any) -> None:
    order, audit = Order.objects.create(reference="A"), Audit.objects.create()
    unregistered = enqueue(pay(order_id=order.pk), about=order)
    private = enqueue(add(a=1, b=2), about=audit)
    gone = WorkFactory(about_type="removed.thing", about_id="3")
    assert f"<dd>shop.order:{order.pk}</dd>" in page(WORK, unregistered.id)
    assert "<dd>removed.thing:3</dd>" in page(WORK, gone.id)
    shown = viewer.get(address(WORK, private.id)).content.decode()
    assert f"<dd>audit.audit:{audit.pk}</dd>" in shown


def test_a_member_links_to_its_group_for_readers_of_groups(page: Page, client_with: Any) -> None:
    first, second = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    assert f'href="{address("group_change", first.id)}"' in page(WORK, second.id)
    shown = client_with("view_work").get(address(WORK, second.id)).content.decode()
    assert first.id in shown
    assert address("group_change", first.id) not in shown


def test_ids_of_all_kinds_have_a_page(page: Page, operator: Client) -> None:
    for id in ("a/b", "add", "_2F", "ünï-✓", "100%", "a?b=c#d", '"quoted"', "retry/"):
        enqueue(add(a=1, b=2), id=id)
        assert Work.objects.get(id=id).type in page(WORK, quote(id))
    response = operator.get(address(WORK, "missing"), follow=True)
    assert "missing" in response.content.decode()
    assert response.redirect_chain


HOSTILE = "<script>alert('x')</script>&\"'"


def test_stored_texts_are_never_markup(operator: Client) -> None:
    id = "<script>alert('x')</script>"
    texts = "type queue fairness input result error progress options worker"
    ids = "parent_id about_type about_id group_id"
    hostile = WorkFactory(
        id=id,
        status=Status.DEAD,
        reason="<script>x",
        **dict.fromkeys([*texts.split(), *ids.split()], HOSTILE),
    )
    AttemptFactory(work_id=hostile.id, error=HOSTILE, traceback=HOSTILE, worker=HOSTILE)
    GroupFactory(id="<script>alert(1)</script>", value="<script>alert(2)</script>")
    work_page = address(WORK, quote(id))
    for url in (
        address("work_changelist"),
        address("work_changelist", q=HOSTILE, status=HOSTILE, type=HOSTILE, group_id=HOSTILE),
        address("deadletter_list"),
        address("deadletter_change", quote(id)),
        address("group_changelist"),
        address("group_change", "<script>alert(1)<_2Fscript>"),
        work_page,
    ):
        response = operator.get(url)
        assert response.status_code == 200
        assert "<script>alert" not in response.content.decode()
        assert "<script>x" not in response.content.decode()
    assert "&lt;script&gt;alert(&#x27;x&#x27;)" in operator.get(work_page).content.decode()


def test_a_page_takes_a_bounded_number_of_queries(
    operator: Client, django_assert_max_num_queries: Any
) -> None:
    dead, pending = die(), enqueue_many([add(a=number, b=0) for number in range(50)])[-1]
    clock.synchronise()  # done once a minute, so it is not counted here
    # session, user, work, the worker that ended it, attempts, waiter, its waiters
    with django_assert_max_num_queries(9):
        operator.get(address(WORK, dead.id))
    # besides: controls, types of the queue (2; 3 on MariaDB), works ahead, workers
    with django_assert_max_num_queries(13):
        operator.get(address(WORK, pending.id))


def test_a_gate_shows_what_it_waits_for_and_what_it_will_release(page: Page) -> None:
    watched = [add(a=number, b=0) for number in range(3)]
    enqueue_many(watched[:2])
    released = add(a=7, b=7)
    gate = enqueue(dependency(on=watched, queue=[released], condition=Count(2, of="success")))
    shown = page(WORK, gate.id)
    assert_shows(shown, "2 succeeded", "0 of 3 succeeded, 0 ended without success")
    assert shown.count("ayework-pending") == 2
    assert f"<td>{watched[2].id}</td><td>not known here</td>" in shown
    assert f"<td>{released.id}</td><td>shop.add</td><td>{{&quot;a&quot;:7,&quot;b&quot;:7}}</td>" in shown


def test_an_open_gate_links_to_its_released_works_and_a_watched_work_to_its_gate(page: Page) -> None:
    watched, released = add(a=1, b=0), add(a=7, b=7)
    enqueue(watched)
    gate = enqueue(dependency(on=[watched], queue=[released]))
    assert f'href="{address(WORK, gate.id)}"' in page(WORK, watched.id)
    drain()
    shown = page(WORK, gate.id)
    assert_shows(shown, "all succeeded", "1 of 1 succeeded", f'href="{address(WORK, released.id)}"')


def test_an_outcome_outlives_the_watched_work(page: Page) -> None:
    gate = WorkFactory(type=GATE_TYPE, status="blocked", input='{"queue": []}')
    WaiterFactory(work_id=gate.id, total=1, succeeded=1)
    EdgeFactory(waiter_id=gate.id, watched_id="pruned", outcome="success")
    row = '<td>pruned</td><td>not known here</td><td><span class="ayework-status ayework-success">'
    assert row in page(WORK, gate.id)


def test_of_many_watched_works_the_first_hundred_are_shown(
    operator: Client, django_assert_max_num_queries: Any
) -> None:
    watched, released = ([add(a=number, b=0) for number in range(130)] for _ in range(2))
    enqueue_many(watched)
    gate = enqueue(dependency(on=watched, queue=released))
    clock.synchronise()  # done once a minute, so it is not counted here
    with django_assert_max_num_queries(16):
        shown = operator.get(address(WORK, gate.id)).content.decode()
    assert watched[99].id in shown
    assert watched[100].id not in shown
    assert released[99].id in shown
    assert released[100].id not in shown
    assert shown.count("The first 100 of 130.") == 2


def test_a_nested_gate_is_named_by_its_watched_works(page: Page) -> None:
    inner = dependency(on=["x", "y"], queue=[add(a=1, b=1)])
    gate = enqueue(dependency(on=["z"], queue=[inner], condition="all-done"))
    shown = page(WORK, gate.id)
    assert_shows(shown, "a gate watching 2 works", "all ended")


def test_a_gate_whose_input_is_broken_shows_it_as_it_is_stored(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_ayework.flow.payloads.registry", Registry())  # where no type redacts
    gate = WorkFactory(type=GATE_TYPE, status="blocked", input="<b>broken")
    WaiterFactory(work_id=gate.id, condition='"no-such"')
    shown = page(WORK, gate.id)
    assert_shows(shown, "&lt;b&gt;broken", "no-such")


def test_a_gate_that_can_never_open_says_so(page: Page) -> None:
    dead = die()
    gate = enqueue(dependency(on=[dead.id], queue=[add(a=1, b=1)]))
    drain()
    shown = page(WORK, gate.id)
    assert_shows(shown, "unsatisfiable", "0 of 1 succeeded, 1 ended without success", "ayework-dead")


def test_a_group_shows_its_progress(page: Page) -> None:
    enqueue_many([fail(), *(add(a=1, b=number) for number in range(3))], together=True)
    drain(limit=1, raises=False)
    assert 'value="0" max="4"' in page("group_changelist")
    drain(limit=1)
    assert 'value="1" max="4"' in page("group_changelist")
    die()  # runs the others, too
    enqueue(add(a=9, b=9))
    listed = page("group_changelist")
    assert_shows(listed, '<progress class="ayework-bar" value="4" max="4" aria-label="done">', "4 / 4")
    assert_shows(listed, '<td class="field-dead">1</td>', '<td class="field-open">0</td>')


def test_a_group_is_found_by_its_id(operator: Client) -> None:
    groups = [GroupFactory(), GroupFactory()]
    assert ids_on(operator.get(address("group_changelist", q=groups[0].id))) == [groups[0].id]
    assert ids_on(operator.get(address("group_changelist", q=groups[0].id[:8]))) == []


def test_a_page_shows_the_value_and_the_works(page: Page) -> None:
    works = enqueue_many([add(a=1, b=2), add(a=20, b=22)], together=True)
    drain()
    shown = page("group_change", works[0].id)
    assert '<pre class="ayework-text" tabindex="0">42</pre>' in shown
    assert shown.count("ayework-success") == 2
    assert f'href="{address("work_change", works[1].id)}"' in shown
    assert f'href="{address("work_changelist")}?group_id={works[0].id}"' in shown


def test_the_page_of_a_group_shows_no_error_of_a_work_that_the_admin_of_works_hides(
    page: Page, monkeypatch: Any
) -> None:
    group = enqueue_many([fail(message="of a patient"), fail(message="of ours")], together=True)[0].id
    drain(raises=False)
    time_travel(60)
    drain(raises=False)
    hide(monkeypatch, error__contains="patient")
    shown = page("group_change", group)
    assert_shows(shown, "of ours")
    assert_hides(shown, "patient")


def test_of_many_works_the_first_hundred_are_shown(
    operator: Client, django_assert_max_num_queries: Any
) -> None:
    works = enqueue_many([add(a=1, b=number) for number in range(130)], together=True)
    # session, user; the group and its works; why two of them wait; one more on PostgreSQL, four on MariaDB
    with django_assert_max_num_queries(22):
        shown = operator.get(address("group_change", works[0].id)).content.decode()
    assert works[99].id in shown
    assert works[100].id not in shown
    assert "The first 100 of 130: those that need attention." in shown
