"""The lists of works, dead letters, groups and workers: rows, search, filters, pages and cost."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib import admin
from django.contrib.staticfiles import finders
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.timezone import localdate

from django_ayework import Retry, dependency, enqueue, enqueue_many, work
from django_ayework.admin import finding, lists
from django_ayework.admin.works import WorkAdmin
from django_ayework.define.requests import GATE_TYPE
from django_ayework.models import DeadLetter, Work
from django_ayework.rules.states import Reason, Status
from django_ayework.store.database import clock
from django_ayework.testing.factories import (
    DeadLetterFactory,
    GroupFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.admin.kit import address, assert_hides, assert_shows, copies, die, ids_on
from tests.app.models import Order
from tests.app.works import add, notify, pay
from tests.marks import each_database
from tests.outputs.works import fetch, store

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
LIST = "work_changelist"
DEAD = "deadletter_list"


@work(name="lists.secret", redact=["pin"])
def secret(pin: str) -> None: ...


@pytest.fixture
def listed(operator):
    """The ids of a list's rows."""
    return lambda name=LIST, **query: ids_on(operator.get(address(name, **query)))


@pytest.fixture
def look_at(monkeypatch):
    """Set how many of the newest works a filter without an index looks at."""
    return lambda number: monkeypatch.setattr(finding, "LOOKED_AT", number)


# Rows


def test_rows_show_the_state_of_works_and_progress_of_any_shape(page):
    then = clock.now() + timedelta(days=40)
    enqueue(add(a=1, b=2), run_at=then)
    handle = enqueue(notify(order_id=7), priority=13, retry=Retry(attempts=9))
    rows = '{"done": 40, "total": 120, "note": "<b>rows</b>"}'
    for progress in (rows, '{"done": 3, "total": null, "note": ""}', "[1]", "half"):
        WorkFactory(status=Status.RUNNING, progress=progress)
    text = page(LIST)
    day = f">{then.day} {then:%b %H:%M}<"
    assert_shows(text, handle.id, "shop.notify", ">mail<", ">13<", "0 / 9", "ayework-pending", day)
    assert text.count(">running</span>") == 4
    bar = '<progress class="ayework-bar" value="40" max="120" aria-label="progress">'
    assert_shows(text, bar, "40 / 120", "&lt;b&gt;rows")


def test_a_dead_work_shows_its_reason_and_the_first_line_of_its_error(page):
    dead = die("no luck\nsecond line")
    for text, reason in ((page(LIST), "<small>exhausted</small>"), (page(DEAD), "exhausted")):
        assert_shows(text, "RuntimeError: no luck", reason, "3 / 3")
        assert "second line" not in text
    shown = page("deadletter_change", dead.id)
    assert_shows(shown, "RuntimeError: no luck", address("deadletter_retry", dead.id))


def test_every_status_has_a_colour():
    css = Path(str(finders.find("django_ayework/admin.css"))).read_text()
    assert_shows(css, *(f".ayework-{status} {{ background: #" for status in Status))


def test_each_variable_of_the_style_sheets_has_a_value_in_themes_that_replace_the_admin_s():
    own = Path(str(finders.find("django_ayework/admin.css")))
    [layer] = re.findall(r"@layer ayework \{\n  :root \{\n(.*?)\n  \}", own.read_text(), re.DOTALL)
    sheets = "".join(path.read_text() for path in own.parent.glob("*.css"))
    used = set(re.findall(r"var\((--(?!ayework)[\w-]+)\)", sheets))
    assert used <= set(re.findall(r"(--[\w-]+):", layer))


def test_the_list_of_groups_names_the_type_of_the_first_work(page):
    for type in ("shop.pay", GATE_TYPE):
        GroupFactory(id=WorkFactory(type=type).id)
    GroupFactory()  # its works are deleted
    found = re.findall(r'<td class="field-first_work">(.*?)</td>', page("group_changelist"))
    assert sorted(found) == ["gate", "shop.pay", "–"]


@each_database
def test_only_dead_works_are_listed_the_latest_death_first_and_filtered_by_reason_and_type(listed):
    hour, now = timedelta(hours=1), clock.now()
    dead = [
        DeadLetterFactory(
            reason=reason, type=f"shop.{reason}", queued_at=now - 90 * hour, ended_at=now - age % 7 * hour
        )
        for age, reason in enumerate(Reason, 4)
    ]
    WorkFactory(status="scheduled", attempt=1, error="will be retried")
    WorkFactory(status="cancelled")
    latest_first = sorted(dead, key=lambda letter: letter.ended_at, reverse=True)
    assert listed(DEAD) == [letter.id for letter in latest_first]
    for letter in dead:
        assert listed(DEAD, reason=letter.reason) == listed(DEAD, type=letter.type) == [letter.id]


@each_database
def test_choices_are_declared_or_those_of_pending_works(page):
    WorkFactory(type="gone.forever", queue="backwater", status="success")
    enqueue(add(a=1, b=2), queue="named/only here", fairness="tenant 7")
    worker = WorkerProcessFactory(name="blue")
    text = page(LIST).replace("%20", "+").replace("%40", "@").replace("%2F", "/")
    assert_shows(text, "?queue=named/only+here", "?queue=mail", "?fairness=tenant", f"?worker={worker.id}")
    assert_shows(text, "?type=shop.notify", "?type=@work/dependency")
    assert_hides(text, "?type=gone.forever", "?queue=backwater")


# Cost


@pytest.mark.parametrize(
    ("name", "factory", "columns"),
    [
        (LIST, WorkFactory, {}),
        (DEAD, DeadLetterFactory, {}),
        ("group_changelist", GroupFactory, {"value": '"x"'}),
        ("workerprocess_changelist", WorkerProcessFactory, {}),
    ],
)
def test_a_list_of_several_pages_takes_few_queries(
    listed, monkeypatch, django_assert_max_num_queries, name, factory, columns
):
    model = DeadLetter if name == DEAD else factory._meta.model
    monkeypatch.setattr(admin.site.get_model_admin(model), "list_per_page", 20)
    factory._meta.model.objects.bulk_create(factory.build_batch(25, **columns))
    listed(name)
    clock.synchronise()  # done once a minute, so it is not counted here
    # session, user, count, page; of works besides the choices of queue, worker and label
    with django_assert_max_num_queries(12 if name == LIST else 4):
        assert len(listed(name)) == 20
    for query in ({"type": "shop.add", "queue": "default"}, {"q": "shop."}, {"q": "a text"}):
        if name == LIST:
            with django_assert_max_num_queries(16):
                listed(**query)


def test_neither_inputs_and_results_are_read_nor_the_whole_table_counted(listed):
    WorkFactory(status="success", result="3")
    with CaptureQueriesContext(connection) as queries:
        listed()
    statements = [query["sql"].replace("`", '"') for query in queries]
    assert not [sql for sql in statements if '"input"' in sql or '."result"' in sql or "DISTINCT" in sql]
    [count] = [sql for sql in statements if "COUNT(" in sql]
    assert f"LIMIT {lists.COUNTED + 1}" in count


def test_many_works_are_counted_up_to_a_bound(page, monkeypatch):
    monkeypatch.setattr(lists, "COUNTED", 1200)
    assert "0\nworks" in page(LIST)
    copies(WorkFactory.build(), 1200)
    assert "1,200\nworks" in page(LIST)
    WorkFactory()
    text = page(LIST)
    assert "1,200+\nworks" in text
    assert "1,201" not in text


@each_database
def test_indexes_lead_to_ids_and_to_the_dead(operator):
    DeadLetterFactory()
    plans = [operator.get(address(DEAD)).context["cl"].queryset.explain()]
    for term in ("order-17", "0199f3a1-72c4-7a11-9a3e-2f6d2c90b7e1"):
        WorkFactory(id=term)
        search = finding.search_for(term)
        assert not search.is_broad
        plans.append(Work.objects.filter(search.condition).explain())
    if connection.vendor == "sqlite":
        assert "ayework_dead" in plans[0]
        assert [plan for plan in plans[1:] if "SCAN" in plan] == []


# Pages


def walked(operator, **query):
    """Follow the pages of a list, and its links to older ones."""
    seen, url = [], address(LIST, **query)
    while url is not None:
        first = operator.get(url)
        for number in range(1, first.context["cl"].paginator.num_pages + 1):
            response = operator.get(f"{url}{'&' if '?' in url else '?'}p={number}")
            seen += ids_on(response)
        older = response.context["cl"].older_url
        url = older and address(LIST) + older
    return seen


def test_what_lies_beyond_the_last_page_is_reached_without_a_gap(operator, monkeypatch):
    monkeypatch.setattr(WorkAdmin, "list_per_page", 5)
    monkeypatch.setattr(lists, "COUNTED", 10)
    handles = enqueue_many([add(a=number, b=0) for number in range(23)])
    assert walked(operator) == sorted((handle.id for handle in handles), reverse=True)


@each_database
def test_works_come_in_the_order_of_queueing_whatever_their_ids(operator, listed, look_at):
    look_at(2)
    now, ids = clock.now(), ["zebra", "ant", "mouse", "bee", "cat"]
    for ago, id in enumerate(ids):
        WorkFactory(id=id, queued_at=now - timedelta(minutes=ago))
    assert listed() == walked(operator, type="shop.add") == ids


@each_database
def test_a_walk_goes_on_among_works_of_one_moment(operator, look_at):
    look_at(3)
    moment = dict.fromkeys(("queued_at", "ended_at"), clock.now())
    dead = [DeadLetterFactory(**moment, error="no luck").id for _ in range(7)]
    for query in ({"q": "no luck"}, {"q": "no luck", "status": "dead"}):
        assert walked(operator, **query) == sorted(dead, reverse=True)
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
def test_filters_without_an_index_look_at_the_newest_and_say_so(operator, listed, look_at, query, request_):
    look_at(10)
    old = enqueue(request_)
    enqueue_many([add(a=number, b=0) for number in range(9)])
    assert listed(**query) == [old.id]
    enqueue(add(a=0, b=0))
    response = operator.get(address(LIST, **query))
    assert ids_on(response) == []
    assert "of the newest" in response.content.decode()
    older = operator.get(address(LIST) + response.context["cl"].older_url)
    assert ids_on(older) == [old.id]
    assert older.context["cl"].older_url is None


def test_a_search_for_a_text_looks_at_the_latest_dead_letters_and_says_so(operator, look_at):
    look_at(2)
    rare = DeadLetterFactory(error="ValueError: rare", ended_at=clock.now() - timedelta(days=1))
    DeadLetterFactory.create_batch(2)
    listed = address("deadletter_list")
    response = operator.get(listed, {"q": "rare", "type": rare.type})
    assert ids_on(response) == []
    assert "of the newest" in response.content.decode()
    assert response.context["cl"].hint == ""
    older = operator.get(listed + response.context["cl"].older_url)
    assert ids_on(older) == [rare.id]
    assert ids_on(operator.get(listed, {"q": rare.id})) == [rare.id]


@each_database
def test_a_rare_type_is_found_by_its_ended_status_however_old_it_is(operator, listed, look_at):
    look_at(3)
    old = clock.now() - timedelta(days=1)
    rare, dead = (
        WorkFactory(type="lists.rare", status=status, queued_at=old) for status in ("success", "dead")
    )
    Work.objects.filter(id=dead.id).update(reason="exhausted")
    WorkFactory.create_batch(5)
    hint = "An ended status beside the type finds all of its works."
    for query, ids in (({}, []), ({"status": "success"}, [rare.id])):
        response = operator.get(address(LIST, type="lists.rare", **query))
        assert ids_on(response) == ids
        assert (hint in response.content.decode()) is (ids == [])
    assert listed(type="lists.rare", status="dead") == [dead.id]
    assert listed(type="lists.rare", reason="exhausted") == [dead.id]


# Search


@each_database
def test_works_are_found_by_what_names_them(listed):
    order, other = Order.objects.create(reference="A"), Order.objects.create(reference="B")
    works = {"own": enqueue(add(a=1, b=2), id="order-17"), "generated": enqueue(add(a=1, b=2))}
    works |= {unit: enqueue(fetch(), unit=unit) for unit in ("page/7", "page/70", "page/7 and more")}
    works |= {"stored": enqueue(store(), unit="page/7"), "about": enqueue(pay(order_id=1), about=order)}
    enqueue(pay(order_id=2), about=other)
    members = enqueue_many([add(a=1, b=1), add(a=2, b=2)], together=True)
    for step in range(2):
        WorkFactory(id=f"step-{step}", chain_id="chain-1", chain_index=step)
    expected = {
        works["generated"].id: [works["generated"].id],
        " order-17 ": ["order-17"],
        "order-1": [],
        members[0].group_id: [member.id for member in reversed(members)],
        "chain-1": ["step-1", "step-0"],
        "page/7": [works["stored"].id, works["page/7"].id],
        "out.fetch:page/7": [works["page/7"].id],
        "out.store:page/7": [works["stored"].id],
        f"shop.order:{order.pk}": [works["about"].id],
        f"shop.Order:{order.pk}": [works["about"].id],
    }
    assert {term: listed(q=term) for term in expected} == expected
    assert listed(group_id=members[0].group_id) == expected[members[0].group_id]


@each_database
def test_works_are_found_by_the_beginning_of_their_type(listed):
    dead = DeadLetterFactory(type="shop.fail").id
    mail, pay, gone = (WorkFactory(type=type).id for type in ("shop.notify", "shop.pay", "gone.forever"))
    assert listed(q="shop.no") == [mail]
    assert listed(q="shop") == [pay, mail, dead]
    assert listed(q="gone.") == [gone]
    assert [listed(DEAD, q=term) for term in (dead, "shop.f", "shop.no")] == [[dead], [dead], []]


@each_database
def test_an_id_that_looks_like_a_type_is_found_however_old(listed, look_at):
    look_at(3)
    for id in ("!", "#shop.add"):  # they sort before all generated ids
        WorkFactory(id=id, type="x")
    WorkFactory.create_batch(5)
    assert listed(q="#shop.add") == ["#shop.add"]


def test_the_page_of_a_work_leads_to_all_works_of_its_unit(operator, page):
    first, second, _ = (
        WorkFactory(type="out.fetch", unit=f"page/{n}", status="cancelled").id for n in (7, 7, 8)
    )
    query = "?type=out.fetch&amp;unit=page%2F7"
    assert query in page("work_change", first)
    response = operator.get(address(LIST) + query.replace("&amp;", "&"))
    assert ids_on(response) == [second, first]
    assert "<b>page/7</b>" in response.content.decode()


@each_database
def test_no_search_tells_what_is_redacted(listed):
    pin = '{"pin":"4711"}'
    known = WorkFactory(type="lists.secret", input=pin)
    gone = WorkFactory(type="gone.forever", input=pin, options='{"retry":[1,1,1,1,0],"redact":["pin"]}')
    shown = WorkFactory(type="shop.add", input='{"a":"4711"}')
    assert listed(q="4711") == [shown.id]
    assert {*listed(q=known.id), *listed(q=gone.id)} == {known.id, gone.id}


# Filters


@each_database
def test_each_status_has_its_order_alone_and_with_a_type(listed):
    ids = {
        (status, type): WorkFactory(status=status, type=type, queue=queue).id
        for status in Status
        for type, queue in (("shop.add", "a"), ("shop.fail", "b"))
    }
    for status in Status:
        assert set(listed(status=status)) == {ids[status, "shop.add"], ids[status, "shop.fail"]}
        assert listed(status=status, type="shop.add") == [ids[status, "shop.add"]]
    for status in (Status.PENDING, Status.DEAD):
        assert listed(status=status, queue="b") == [ids[status, "shop.fail"]]
        assert listed(status=status, type="shop.add", queue="b") == []
    assert listed(status="lost") == []


@each_database
def test_filters_by_type_queue_reason_worker_label_and_day(operator, listed):
    now = clock.now()
    dead, mail = DeadLetterFactory(), WorkFactory(type="shop.notify", queue="mail")
    runs = WorkFactory(status="running", worker="w-1", fairness="a")
    ended = WorkFactory(status="success", completed_by="w-1", queued_at=now - timedelta(days=2), fairness="b")
    day = localdate(now - timedelta(days=2)).isoformat()
    for query, found in (
        ({"reason": "exhausted"}, [dead]),
        ({"reason": "expired"}, []),
        ({"type": "shop.notify"}, [mail]),
        ({"queue": "mail"}, [mail]),
        ({"worker": "w-1"}, [runs, ended]),
        ({"fairness": "b"}, [ended]),
        ({"day": day}, [ended]),
        ({"day": day, "worker": "w-1", "type": "shop.fail"}, []),
    ):
        assert listed(**query) == [work.id for work in found], query
    for odd in ({"day": "yesterday"}, {"day": "2026-99-99"}, {"day": "9999-12-31"}):
        assert operator.get(address(LIST, **odd)).status_code == 200


@each_database
@pytest.mark.parametrize(
    "older",
    ["nonsense", "2020-01-01~a", "0001-01-01T00:00:00+14:00~a", "9999-12-31T23:00:00-14:00~a", "9999-12-31~"],
)
def test_a_list_opens_from_any_place_that_an_address_names(operator, older):
    assert operator.get(address(LIST, older=older)).status_code == 200


@each_database
def test_other_columns_and_texts_that_no_column_can_have_cannot_be_looked_for(operator):
    for lookup in ("input__contains", "error__icontains", "options", "worker__startswith"):
        assert operator.get(address(LIST), {lookup: "a"}).status_code == 400
    for name, parameter in (
        ("work", "queue"),
        ("work", "unit"),
        ("deadletter", "cause"),
        ("deadletter", "type"),
        ("deadletter", "q"),
    ):
        url = address(f"{name}_changelist")
        response = operator.get(url, {parameter: "a\0b"})  # PostgreSQL takes no text with a NUL
        assert (response.status_code, response["Location"]) == (302, f"{url}?e=1")
