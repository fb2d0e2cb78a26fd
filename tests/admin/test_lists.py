"""The lists of works, dead letters, groups and workers: rows, filters, search and cost."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_ayework import Retry, cancel, dependency, enqueue, enqueue_many
from django_ayework.admin import finding, lists
from django_ayework.admin.works import WorkAdmin
from django_ayework.define.requests import GATE_TYPE
from django_ayework.rules.states import Reason, Status
from django_ayework.store.database import clock
from django_ayework.testing import drain, time_travel
from django_ayework.testing.factories import (
    DeadLetterFactory,
    GroupFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.admin.conftest import Page
from tests.admin.kit import address, assert_hides, assert_shows, die, ids_on
from tests.app.works import add, fail, notify, pay
from tests.outputs.works import fetch

pytestmark = pytest.mark.django_db
LIST = "work_changelist"
DEAD = "deadletter_list"
WORKERS = "workerprocess_changelist"


def test_a_row_shows_the_state_of_its_work(page: Page) -> None:
    then = clock.now() + timedelta(days=40)
    enqueue(add(a=1, b=2), run_at=then)
    handle = enqueue(notify(order_id=7), priority=13, retry=Retry(attempts=9))
    listed = page(LIST)
    day = f">{then.day} {then:%b %H:%M}<"
    assert_shows(listed, handle.id, "shop.notify", ">mail<", ">13<", "0 / 9", "ayework-pending", day)


def test_a_dead_work_shows_its_reason_and_the_first_line_of_its_error(page: Page) -> None:
    dead = die("no luck\nsecond line")
    for listed, reason in ((page(LIST), "<small>exhausted</small>"), (page(DEAD), "exhausted")):
        assert "RuntimeError: no luck" in listed
        assert "second line" not in listed
        assert reason in listed
        assert "3 / 3" in listed
    shown = page("deadletter_change", dead.id)
    assert_shows(shown, "RuntimeError: no luck", address("deadletter_retry", dead.id))


def test_a_running_work_shows_progress_of_any_shape(page: Page) -> None:
    for progress in (
        '{"done": 40, "total": 120, "note": "<b>rows</b>"}',
        '{"done": 3, "total": null, "note": ""}',
        "[1]",
        "half",
    ):
        WorkFactory(status=Status.RUNNING, progress=progress)
    listed = page(LIST)
    assert listed.count(">running</span>") == 4
    bar = '<progress class="ayework-bar" value="40" max="120" aria-label="progress">'
    assert_shows(listed, bar, "40 / 120", "&lt;b&gt;rows")


def test_every_status_has_a_colour() -> None:
    css = Path(str(finders.find("django_ayework/admin.css"))).read_text()
    for status in Status:
        assert f".ayework-{status} {{ background: #" in css


def test_choices_are_declared_or_those_of_pending_works(page: Page) -> None:
    WorkFactory(type="gone.forever", queue="backwater", status="success")
    enqueue(add(a=1, b=2), queue="named/only here", fairness="tenant 7")
    worker = WorkerProcessFactory(name="blue")
    listed = page(LIST)
    assert "?queue=named%2Fonly%20here" in listed or "?queue=named%2Fonly+here" in listed
    assert_shows(listed, "?fairness=tenant", f"?worker={worker.id}", "?type=shop.notify")
    assert "?type=@work/dependency" in listed or "?type=%40work%2Fdependency" in listed
    assert "?queue=mail" in listed
    assert_hides(listed, "?type=gone.forever", "?queue=backwater")


@pytest.mark.parametrize("lookup", ["input__contains", "error__icontains", "options", "worker__startswith"])
def test_other_columns_cannot_be_looked_through(operator: Client, lookup: str) -> None:
    WorkFactory()
    assert operator.get(address(LIST), {lookup: "a"}).status_code == 400


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("work", "queue"), ("work", "unit"), ("deadletter", "cause"), ("deadletter", "type")],
)
def test_a_filter_by_a_text_that_no_column_can_have_is_refused(
    operator: Client, name: str, parameter: str
) -> None:
    """PostgreSQL takes no text with a NUL."""
    response = operator.get(address(f"{name}_changelist"), {parameter: "a\0b"})
    assert (response.status_code, response["Location"]) == (302, f"{address(f'{name}_changelist')}?e=1")


@pytest.mark.parametrize(
    ("page", "factory", "columns"),
    [
        (LIST, WorkFactory, {}),
        (DEAD, DeadLetterFactory, {}),
        ("group_changelist", GroupFactory, {"value": '"x"'}),
        (WORKERS, WorkerProcessFactory, {}),
    ],
)
def test_a_list_of_several_pages_takes_few_queries(
    operator: Client, django_assert_max_num_queries: Any, page: str, factory: Any, columns: dict[str, str]
) -> None:
    factory.create_batch(110, **columns)
    operator.get(address(page))
    clock.synchronise()  # done once a minute, so it is not counted here
    # session, user, count, page; of works besides the choices of queue, worker and label
    with django_assert_max_num_queries(12 if page == LIST else 4):
        assert len(ids_on(operator.get(address(page)))) == 100


def test_the_list_of_groups_names_the_type_of_the_first_work(operator: Client) -> None:
    for type in ("shop.pay", GATE_TYPE):
        GroupFactory(id=WorkFactory(type=type).id)
    GroupFactory()  # its works are deleted
    page = operator.get(address("group_changelist")).content.decode()
    assert sorted(re.findall(r'<td class="field-first_work">(.*?)</td>', page)) == ["gate", "shop.pay", "–"]


def test_filters_and_search_take_few_queries_more(
    operator: Client, django_assert_max_num_queries: Any
) -> None:
    enqueue_many([add(a=number, b=0) for number in range(110)])
    for query in ({"type": "shop.add", "queue": "default"}, {"q": "shop."}, {"q": "a text"}):
        with django_assert_max_num_queries(16):
            operator.get(address(LIST, **query))


def test_neither_inputs_and_results_are_read_nor_the_whole_table_counted(operator: Client) -> None:
    enqueue(add(a=1, b=2))
    drain()
    with CaptureQueriesContext(connection) as queries:
        operator.get(address(LIST))
    statements = [query["sql"].replace("`", '"') for query in queries]
    assert not [sql for sql in statements if '"input"' in sql or '."result"' in sql or "DISTINCT" in sql]
    [count] = [sql for sql in statements if "COUNT(" in sql]
    assert f"LIMIT {lists.COUNTED + 1}" in count


def test_many_works_are_counted_up_to_a_bound(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "COUNTED", 1200)
    assert "0\nworks" in page(LIST)
    enqueue_many([add(a=number, b=0) for number in range(1200)])
    assert "1,200\nworks" in page(LIST)
    enqueue(add(a=0, b=0))
    listed = page(LIST)
    assert "1,200+\nworks" in listed
    assert "1,201" not in listed


def walked(operator: Client, **query: str) -> list[str]:
    """Follow the pages of a list, and its links to older ones."""
    seen: list[str] = []
    url: str | None = address(LIST, **query)
    while url is not None:
        first = operator.get(url)
        for number in range(1, first.context["cl"].paginator.num_pages + 1):
            response = operator.get(f"{url}{'&' if '?' in url else '?'}p={number}")
            seen += ids_on(response)
        older = response.context["cl"].older_url
        url = older and address(LIST) + older
    return seen


def test_what_lies_beyond_the_last_page_is_reached_without_a_gap(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkAdmin, "list_per_page", 20)
    monkeypatch.setattr(lists, "COUNTED", 40)
    handles = enqueue_many([add(a=number, b=0) for number in range(90)])
    assert walked(operator) == sorted((handle.id for handle in handles), reverse=True)


def test_works_come_in_the_order_of_queueing_whatever_their_ids(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "LOOKED_AT", 2)
    now = clock.now()
    ids = ["zebra", "ant", "mouse", "bee", "cat"]
    for ago, id in enumerate(ids):
        WorkFactory(id=id, queued_at=now - timedelta(minutes=ago))
    assert ids_on(operator.get(address(LIST))) == ids
    assert walked(operator, type="shop.add") == ids


def test_a_walk_goes_on_among_works_of_one_moment(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "LOOKED_AT", 3)
    now = clock.now()
    dead = [DeadLetterFactory(queued_at=now, ended_at=now, error="no luck").id for _ in range(8)]
    assert walked(operator, q="no luck") == sorted(dead, reverse=True)
    assert walked(operator, q="no luck", status="dead") == sorted(dead, reverse=True)
    assert walked(operator, q="no such text") == []


@pytest.mark.parametrize(
    ("query", "request_"),
    [
        ({"queue": "mail"}, notify(order_id=1)),
        ({"status": "blocked", "queue": "default"}, dependency(on=["x"], queue=[add(a=1, b=2)])),
        ({"q": '"order_id":31337'}, pay(order_id=31337)),
    ],
    ids=["queue", "blocked", "input"],
)
def test_filters_without_an_index_look_at_the_newest_and_say_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch, query: dict[str, str], request_: Any
) -> None:
    monkeypatch.setattr(finding, "LOOKED_AT", 10)
    old = enqueue(request_)
    enqueue_many([add(a=number, b=0) for number in range(9)])
    assert ids_on(operator.get(address(LIST, **query))) == [old.id]
    enqueue(add(a=0, b=0))
    response = operator.get(address(LIST, **query))
    assert ids_on(response) == []
    assert "of the newest" in response.content.decode()
    older = operator.get(address(LIST) + response.context["cl"].older_url)
    assert ids_on(older) == [old.id]
    assert older.context["cl"].older_url is None


def test_dead_works_of_a_type_are_all_found(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "LOOKED_AT", 2)
    dead = die()
    enqueue_many([add(a=number, b=0) for number in range(9)])
    assert ids_on(operator.get(address(LIST, type="shop.fail", status="dead"))) == [dead.id]
    assert ids_on(operator.get(address(LIST, type="shop.fail", reason="exhausted"))) == [dead.id]


def found(client: Client, term: str, page: str = "work_changelist") -> list[str]:
    return ids_on(client.get(address(page, q=term)))


def test_works_are_found_by_the_beginning_of_their_type(operator: Client) -> None:
    dead, mail, payment = die(), enqueue(notify(order_id=1)), enqueue(pay(order_id=1))
    unregistered = WorkFactory(type="gone.forever")
    assert found(operator, "shop.no") == [mail.id]
    assert found(operator, "shop") == [payment.id, mail.id, dead.id]
    assert found(operator, "gone.") == [unregistered.id]
    assert [found(operator, term, DEAD) for term in (dead.id, "shop.f", "shop.no")] == [[dead.id]] * 2 + [[]]


def test_the_page_of_a_work_leads_to_all_works_of_its_unit(operator: Client) -> None:
    handles = []
    for _ in range(2):
        handles.append(enqueue(fetch(), unit="page/7").id)
        cancel(handles[-1])
    enqueue(fetch(), unit="page/8")
    shown = operator.get(address("work_change", handles[0])).content.decode()
    query = "?type=out.fetch&amp;unit=page%2F7"
    assert query in shown
    listed = operator.get(address("work_changelist") + query.replace("&amp;", "&"))
    assert ids_on(listed) == handles[::-1]
    assert "<b>page/7</b>" in listed.content.decode()


def test_an_id_that_looks_like_a_type_is_found_however_old(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "LOOKED_AT", 3)
    WorkFactory(id="!", type="x")
    WorkFactory(id="#shop.add", type="x")  # sorts before all generated ids
    enqueue_many([add(a=number, b=0) for number in range(5)])
    assert found(operator, "#shop.add") == ["#shop.add"]


def test_only_dead_works_are_listed_and_the_latest_death_comes_first(operator: Client) -> None:
    long_lived = enqueue(fail(), delay=3600)
    early = die()
    time_travel(3600)
    for _ in range(4):
        drain(raises=False)
        time_travel(60)
    enqueue(add(a=1, b=2))
    enqueue(fail(message="will be retried"))
    drain(raises=False)
    assert ids_on(operator.get(address(DEAD))) == [long_lived.id, early.id]


def test_filters_by_reason_and_type(operator: Client) -> None:
    letters = {reason: DeadLetterFactory(reason=reason, type=f"shop.{reason}") for reason in Reason}
    for reason in Reason:
        assert ids_on(operator.get(address(DEAD, reason=reason))) == [letters[reason].id]
        assert ids_on(operator.get(address(DEAD, type=f"shop.{reason}"))) == [letters[reason].id]


def test_an_index_leads_to_the_dead(operator: Client) -> None:
    DeadLetterFactory()
    queryset = operator.get(address(DEAD)).context["cl"].queryset
    if connection.vendor == "sqlite":
        assert "ayework_dead" in queryset.explain()


def test_a_worker_shows_its_queues_and_load_and_has_a_page_without_a_form(page: Page) -> None:
    worker = WorkerProcessFactory(
        host="<b>h", pid=4242, name="blue", queues="mail,media", running=3, concurrency=7
    )
    WorkerProcessFactory(queues="")
    listed, shown = page(WORKERS), page("workerprocess_change", worker.id)
    assert_shows(listed, "&lt;b&gt;h", ">4242<", ">blue<", ">mail,media<", ">3 / 7<", ">all<")
    assert "blue" in shown
    assert 'name="_save"' not in shown
