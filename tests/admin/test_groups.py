"""Groups: the list, and a page for each."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from django_ayework import enqueue, enqueue_many
from django_ayework.testing import drain
from django_ayework.testing.factories import GroupFactory
from tests.admin.conftest import Page
from tests.admin.kit import address, die, ids_on
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


def test_a_group_shows_how_far_it_is(page: Page) -> None:
    enqueue_many([fail(), *(add(a=1, b=number) for number in range(3))], together=True)
    die()  # runs the others, too
    enqueue(add(a=9, b=9))
    listed = page("group_changelist")
    assert '<progress class="ayework-bar" value="4" max="4">' in listed
    assert "4 / 4" in listed
    assert '<td class="field-dead">1</td>' in listed
    assert '<td class="field-open">0</td>' in listed


def test_an_open_group_is_partly_done(page: Page) -> None:
    enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    drain(limit=1)
    assert 'value="1" max="2"' in page("group_changelist")


def test_a_group_is_found_by_its_id(operator: Client) -> None:
    groups = [GroupFactory(), GroupFactory()]
    assert ids_on(operator.get(address("group_changelist", q=groups[0].id))) == [groups[0].id]
    assert ids_on(operator.get(address("group_changelist", q=groups[0].id[:8]))) == []


def test_a_list_of_300_takes_four_queries(operator: Client, django_assert_num_queries: Any) -> None:
    GroupFactory.create_batch(300, value='"x"')
    operator.get(address("group_changelist"))
    with django_assert_num_queries(4):  # session, user, count, page
        assert len(ids_on(operator.get(address("group_changelist")))) == 100


def test_a_page_shows_the_value_and_the_works(page: Page) -> None:
    works = enqueue_many([add(a=1, b=2), add(a=20, b=22)], together=True)
    drain()
    shown = page("group_change", works[0].id)
    assert '<pre class="ayework-text">42</pre>' in shown
    assert shown.count("ayework-success") == 2
    assert f'href="{address("work_change", works[1].id)}"' in shown
    assert f'href="{address("work_changelist")}?group_id={works[0].id}"' in shown


def test_of_many_works_the_first_hundred_are_shown(
    operator: Client, django_assert_max_num_queries: Any
) -> None:
    works = enqueue_many([add(a=1, b=number) for number in range(130)], together=True)
    with django_assert_max_num_queries(4):  # session, user, group, works
        shown = operator.get(address("group_change", works[0].id)).content.decode()
    assert works[99].id in shown
    assert works[100].id not in shown
    assert "The first 100 of 130." in shown


def test_a_hostile_group_is_harmless(page: Page) -> None:
    GroupFactory(id="<script>alert(1)</script>", value="<script>alert(2)</script>")
    assert "<script>alert" not in page("group_changelist")
    assert "<script>alert" not in page("group_change", "<script>alert(1)<_2Fscript>")
