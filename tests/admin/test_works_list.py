"""The list of works."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_ayework import Retry, dependency, enqueue, enqueue_many
from django_ayework.admin import lists
from django_ayework.admin import lists as paging
from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.clock import clock
from django_ayework.testing import drain
from django_ayework.testing.factories import WorkFactory
from tests.admin.conftest import Page
from tests.admin.kit import address, die, ids_on
from tests.app.works import add, notify

pytestmark = pytest.mark.django_db
LIST = "work_changelist"


def test_it_shows_where_every_work_stands(page: Page) -> None:
    waits = enqueue(notify(order_id=7), priority=13, retry=Retry(attempts=9))
    listed = page(LIST)
    assert waits.id in listed
    assert "shop.notify" in listed
    assert ">mail<" in listed
    assert ">13<" in listed
    assert "0 / 9" in listed
    assert "ayework-pending" in listed


def test_the_newest_comes_first(operator: Client) -> None:
    handles = [enqueue(add(a=number, b=0)) for number in range(5)]
    assert ids_on(operator.get(address(LIST))) == [handle.id for handle in reversed(handles)]


def test_a_dead_work_shows_its_reason_and_the_first_line_of_its_error(page: Page) -> None:
    die("no luck\nsecond line")
    listed = page(LIST)
    assert "RuntimeError: no luck" in listed
    assert "second line" not in listed
    assert "<small>exhausted</small>" in listed


def test_a_running_work_shows_its_progress(page: Page) -> None:
    WorkFactory(status=Status.RUNNING, progress='{"done": 40, "total": 120, "note": "<b>rows</b>"}')
    listed = page(LIST)
    assert '<progress class="ayework-bar" value="40" max="120">' in listed
    assert "40 / 120" in listed
    assert "&lt;b&gt;rows" in listed


@pytest.mark.parametrize("progress", ['{"done": 3, "total": null, "note": ""}', "[1]", "half"])
def test_progress_of_any_shape_does_not_break_the_list(page: Page, progress: str) -> None:
    WorkFactory(status=Status.RUNNING, progress=progress)
    assert "ayework-running" in page(LIST)


def test_a_moment_of_another_day_shows_its_day(page: Page) -> None:
    then = clock.now() + timedelta(days=40)
    enqueue(add(a=1, b=2), run_at=then)
    assert f">{then.day} {then:%b %H:%M}<" in page(LIST)


def test_every_status_has_a_colour() -> None:
    css = Path(str(finders.find("django_ayework/admin.css"))).read_text()
    for status in Status:
        assert f".ayework-{status} {{ background: #" in css


@pytest.mark.parametrize("status", list(Status))
def test_a_filter_shows_the_works_of_one_status(operator: Client, status: Status) -> None:
    works = {each: WorkFactory(status=each, id=f"is-{each}") for each in Status}
    assert ids_on(operator.get(address(LIST, status=status))) == [works[status].id]


def test_no_work_has_a_status_that_is_none(operator: Client) -> None:
    WorkFactory()
    response = operator.get(address(LIST, status="lost"))
    assert (response.status_code, ids_on(response)) == (200, [])


def test_filters_by_reason_type_and_queue(operator: Client) -> None:
    dead, mail, plain = die(), enqueue(notify(order_id=1)), enqueue(add(a=1, b=2))
    assert ids_on(operator.get(address(LIST, reason="exhausted"))) == [dead.id]
    assert ids_on(operator.get(address(LIST, reason="expired"))) == []
    assert ids_on(operator.get(address(LIST, type="shop.add"))) == [plain.id]
    assert ids_on(operator.get(address(LIST, queue="mail"))) == [mail.id]


def test_choices_are_declared_and_not_read_from_the_table(page: Page) -> None:
    WorkFactory(type="gone.forever", queue="backwater")
    listed = page(LIST)
    assert "?type=shop.notify" in listed
    assert "?type=@work/dependency" in listed or "?type=%40work%2Fdependency" in listed
    assert "?queue=mail" in listed
    assert "?type=gone.forever" not in listed
    assert "?queue=backwater" not in listed


@pytest.mark.parametrize("lookup", ["input__contains", "error__icontains", "options", "worker__startswith"])
def test_other_columns_cannot_be_looked_through(operator: Client, lookup: str) -> None:
    WorkFactory()
    assert operator.get(address(LIST), {lookup: "a"}).status_code == 400


def test_works_of_a_group_can_be_listed(operator: Client) -> None:
    together = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    enqueue(add(a=3, b=3))
    listed = ids_on(operator.get(address(LIST, group_id=together[0].group_id)))
    assert sorted(listed) == sorted(handle.id for handle in together)


def test_a_list_of_300_takes_four_queries(operator: Client, django_assert_num_queries: Any) -> None:
    enqueue_many([add(a=number, b=0) for number in range(300)])
    operator.get(address(LIST))
    with django_assert_num_queries(4):  # session, user, count, page
        assert len(ids_on(operator.get(address(LIST)))) == 100


def test_filters_and_search_take_few_queries_more(operator: Client, django_assert_num_queries: Any) -> None:
    enqueue_many([add(a=number, b=0) for number in range(300)])
    with django_assert_num_queries(5):  # besides: how far to look
        operator.get(address(LIST, type="shop.add", queue="default"))
    with django_assert_num_queries(7):  # besides: is it an id, once for the list and once for its bound
        operator.get(address(LIST, q="shop."))


def test_inputs_results_and_errors_stay_in_the_database(operator: Client) -> None:
    enqueue(add(a=1, b=2))
    drain()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        operator.get(address(LIST))
    for query in queries:
        assert '"input"' not in query["sql"].replace("`", '"')
        assert '."result"' not in query["sql"].replace("`", '"')


def test_no_statement_counts_the_whole_table(operator: Client) -> None:
    enqueue(add(a=1, b=2))
    with CaptureQueriesContext(connection) as queries:
        operator.get(address(LIST))
    counts = [query["sql"] for query in queries if "COUNT(" in query["sql"]]
    assert len(counts) == 1
    assert f"LIMIT {paging.COUNTED + 1}" in counts[0]
    assert not any("DISTINCT" in query["sql"] for query in queries)


def test_many_works_are_counted_up_to_a_bound(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "COUNTED", 1200)
    enqueue_many([add(a=number, b=0) for number in range(1200)])
    assert "1,200\nworks" in page(LIST)
    enqueue(add(a=0, b=0))
    assert "1,200+\nworks" in page(LIST)
    assert "1,201" not in page(LIST)


def test_what_lies_beyond_the_last_page_is_reached_without_a_gap(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "COUNTED", 200)
    handles = enqueue_many([add(a=number, b=0) for number in range(450)])
    seen, older = [], ""
    while older is not None:
        first = operator.get(address(LIST) + older)
        for number in range(1, first.context["cl"].paginator.num_pages + 1):
            response = operator.get(address(LIST) + (older or "?") + f"&p={number}")
            seen += ids_on(response)
        older = response.context["cl"].older_url
    assert seen == sorted((handle.id for handle in handles), reverse=True)


def test_filters_without_an_index_look_at_the_newest_and_say_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LOOKED_AT", 10)
    old = enqueue(notify(order_id=1))
    enqueue_many([add(a=number, b=0) for number in range(9)])
    assert ids_on(operator.get(address(LIST, queue="mail"))) == [old.id]
    enqueue(add(a=0, b=0))
    response = operator.get(address(LIST, queue="mail"))
    assert ids_on(response) == []
    assert "of the newest" in response.content.decode()
    older = operator.get(address(LIST) + response.context["cl"].older_url)
    assert ids_on(older) == [old.id]
    assert older.context["cl"].older_url is None


def test_what_is_blocked_is_looked_for_among_the_newest(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "LOOKED_AT", 3)
    gate = enqueue(dependency(on=["x"], queue=[add(a=1, b=2)]))
    enqueue_many([add(a=number, b=0) for number in range(5)])
    response = operator.get(address(LIST, status="blocked"))
    assert ids_on(response) == []
    assert ids_on(operator.get(address(LIST) + response.context["cl"].older_url)) == [gate.id]


def test_dead_works_of_a_type_are_all_found(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LOOKED_AT", 2)
    dead = die()
    enqueue_many([add(a=number, b=0) for number in range(9)])
    assert ids_on(operator.get(address(LIST, type="shop.fail", status="dead"))) == [dead.id]
    assert ids_on(operator.get(address(LIST, type="shop.fail", reason="exhausted"))) == [dead.id]


def test_an_empty_list_is_a_list(page: Page) -> None:
    assert not Work.objects.exists()
    assert "0\nworks" in page(LIST)
