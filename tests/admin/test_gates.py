"""Gates, and those who wait, on the page of a work."""

from __future__ import annotations

from typing import Any

import pytest

from django_ayework import Count, dependency, enqueue, enqueue_many
from django_ayework.define.registry import Registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.store.clock import clock
from django_ayework.testing import drain
from django_ayework.testing.factories import EdgeFactory, WaiterFactory, WorkFactory
from tests.admin.conftest import Page
from tests.admin.kit import address, die
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db
WORK = "work_change"


def test_a_gate_shows_what_it_waits_for_and_what_it_will_release(page: Page) -> None:
    watched = [add(a=number, b=0) for number in range(3)]
    enqueue_many(watched[:2])
    released = add(a=7, b=7)
    gate = enqueue(dependency(on=watched, queue=[released], condition=Count(2, of="success")))
    shown = page(WORK, gate.id)
    assert "2 succeeded" in shown
    assert "0 of 3 succeeded, 0 ended without success" in shown
    assert shown.count("ayework-pending") == 2
    assert f"<td>{watched[2].id}</td><td>not known here</td>" in shown
    assert f"<td>{released.id}</td><td>shop.add</td><td>{{&quot;a&quot;:7,&quot;b&quot;:7}}</td>" in shown


def test_an_open_gate_links_to_what_it_released(page: Page) -> None:
    watched, released = add(a=1, b=0), add(a=7, b=7)
    enqueue(watched)
    gate = enqueue(dependency(on=[watched], queue=[released]))
    drain()
    shown = page(WORK, gate.id)
    assert "all succeeded" in shown
    assert "1 of 1 succeeded" in shown
    assert f'href="{address(WORK, released.id)}"' in shown


def test_an_outcome_outlives_the_watched_work(page: Page) -> None:
    gate = WorkFactory(type=GATE_TYPE, status="blocked", input='{"queue": []}')
    WaiterFactory(work_id=gate.id, total=1, succeeded=1)
    EdgeFactory(waiter_id=gate.id, watched_id="pruned", outcome="success")
    assert '<td>pruned</td><td>not known here</td><td><span class="ayework-status ayework-success">' in page(
        WORK, gate.id
    )


def test_of_many_watched_works_the_first_hundred_are_shown(
    operator: Any, django_assert_max_num_queries: Any
) -> None:
    watched, released = ([add(a=number, b=0) for number in range(130)] for _ in range(2))
    enqueue_many(watched)
    gate = enqueue(dependency(on=watched, queue=released))
    clock.synchronise()  # done once a minute, so it is not counted here
    with django_assert_max_num_queries(13):
        shown = operator.get(address(WORK, gate.id)).content.decode()
    assert watched[99].id in shown
    assert watched[100].id not in shown
    assert released[99].id in shown
    assert released[100].id not in shown
    assert shown.count("The first 100 of 130.") == 2


def test_a_nested_gate_is_told_by_what_it_watches(page: Page) -> None:
    inner = dependency(on=["x", "y"], queue=[add(a=1, b=1)])
    gate = enqueue(dependency(on=["z"], queue=[inner], condition="all-done"))
    shown = page(WORK, gate.id)
    assert "a gate watching 2 works" in shown
    assert "all ended" in shown


def test_a_gate_whose_input_is_broken_shows_it_as_it_is_stored(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_ayework.flow.payloads.registry", Registry())  # where no type redacts
    gate = WorkFactory(type=GATE_TYPE, status="blocked", input="<b>broken")
    WaiterFactory(work_id=gate.id, condition='"no-such"')
    shown = page(WORK, gate.id)
    assert "&lt;b&gt;broken" in shown
    assert "no-such" in shown


def test_a_watched_work_shows_who_waits_for_it(page: Page) -> None:
    watched = fail()
    gate = enqueue(dependency(on=[watched], queue=[add(a=1, b=1)]))
    die_with = enqueue(watched)
    assert f'href="{address(WORK, gate.id)}"' in page(WORK, die_with.id)


def test_a_gate_that_can_never_open_says_so(page: Page) -> None:
    dead = die()
    gate = enqueue(dependency(on=[dead.id], queue=[add(a=1, b=1)]))
    drain()
    shown = page(WORK, gate.id)
    assert "unsatisfiable" in shown
    assert "0 of 1 succeeded, 1 ended without success" in shown
    assert "ayework-dead" in shown
