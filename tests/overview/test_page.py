"""The overview in the admin: its content, its permissions and its cost; and ``work_counts``."""

import re
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin import AdminSite
from django.contrib.auth import get_user_model
from django.urls import path

from django_ayework import Status, WorkCount, awork_counts, enqueue_many, work_counts
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow import counts
from django_ayework.flow import overview as reading
from django_ayework.flow.overview import overview
from django_ayework.models import Overview, WorkControl, WorkerProcess
from django_ayework.store import backlog, throughput
from django_ayework.store.throughput import Bucket, Ended, span_start
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.factories import (
    DeadLetterFactory,
    ScheduleFactory,
    WorkControlFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.admin.kit import address, assert_hides, assert_shows, copies
from tests.app.works import add
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
OVERVIEW = "overview_changelist"


def ended(type, *, back=0, **counts):
    minute = span_start(now(), 60) - timedelta(minutes=back)
    throughput.add({Bucket(minute, type, "default"): Ended(**counts)})


# What is shown


def test_the_first_page_says_in_one_sentence_why_nothing_is_processed(page):
    WorkFactory.create_batch(3, queue="exports")
    WorkerProcessFactory(queues="mail")
    text = page(OVERVIEW)
    sentence = "exports: 3 works wait, and no live worker serves the queue."
    assert text.count(sentence) == 1
    assert text.index("<h2") < text.index(sentence) < text.index("</h2>")
    assert_shows(text, "Start one: manage.py ayework_worker --queues exports", "by nobody")


@each_database
def test_a_type_that_floods_comes_first_with_its_share(operator):
    WorkerProcessFactory(running=1)
    WorkFactory.create_batch(30, type="shop.small")
    copies(WorkFactory.build(type="shop.flood", queue="mail"), 1200)
    response = operator.get(address(OVERVIEW))
    first = response.context["board"]["tables"][0].rows[0]
    assert "shop.flood" in first.head
    assert_shows(first.cells[0].value, ">1,200<", "98%")
    assert response.context["board"]["headline"]["text"].startswith("Too many works of shop.flood")
    assert "Pause shop.flood" in response.content.decode()


def test_all_is_not_said_to_be_well_while_works_are_dead(page):
    WorkerProcessFactory()
    assert "ayework-well" in page(OVERVIEW)
    DeadLetterFactory.create_batch(2)
    text = page(OVERVIEW)
    headline = text.partition("<h2")[2].partition("</div>")[0]
    assert_shows(headline, "2 works are dead", "Mend the cause", f'href="{address("deadletter_changelist")}"')
    assert_hides(text, "All is well", "ayework-well")
    DeadLetterFactory.create_batch(5, type=GATE_TYPE, ended_at=now())
    text = page(OVERVIEW)
    assert "7 works died during the last 10 min: gate (5), shop.add (2)." in text
    assert GATE_TYPE not in text


@each_database
def test_works_whose_type_no_worker_knows_are_a_problem_after_a_minute():
    WorkerProcessFactory()
    WorkFactory(type="shop.addd")
    WorkFactory(status="scheduled", run_at=now() + timedelta(seconds=1), error="ValueError: no")
    drain()
    assert overview().headline.code == "all_well"
    for _ in range(2):
        time_travel(timedelta(seconds=40))
        WorkerProcess.objects.update(seen_at=now())
        drain()
    headline = overview().headline
    assert (headline.code, headline.kind, headline.name) == ("type_not_taken", "type", "shop.addd")
    text = r"shop\.addd: 1 work waits, the oldest for 1 min 2\d s, and no worker that"
    assert re.match(text, headline.text)
    assert_shows(headline.remedy, "Did you mean 'shop.add'?", '@work(name="shop.addd")')


@each_database
def test_the_figures_are_those_of_the_command(page):
    WorkerProcessFactory(name="mailer", host="web1", pid=77, running=3, version="1.2", queues="mail")
    WorkerProcessFactory(host="web2", quiet=True)
    early = now() - timedelta(seconds=90)
    WorkFactory.create_batch(2, type="shop.a", run_at=early)
    for status in ("running", "blocked"):
        WorkFactory(type="shop.a", status=status)
    WorkFactory(type="shop.a", status="scheduled", run_at=now() + timedelta(hours=1))
    for seconds in (1, 2, 30):
        began = now() - timedelta(seconds=seconds)
        WorkFactory(type="shop.a", status="success", started_at=began, ended_at=now())
    ended("shop.a", succeeded=6, failed=4, dead=2)
    ended("shop.a", back=30, succeeded=5)
    ScheduleFactory(name="nightly", due_at=now() + timedelta(hours=1), function="shop.nightly")
    DeadLetterFactory.create_batch(2, type="shop.b", ended_at=now() - timedelta(hours=2))
    seen = overview()
    [a] = [type for type in seen.types if type.type == "shop.a"]
    assert (a.pending, a.running, a.scheduled, a.blocked) == (2, 1, 1, 1)
    assert (a.share, a.queues) == (1.0, ("default",))
    assert (a.failed, a.died, sum(a.ended), sum(a.failures)) == (4, 2, 13, 6)
    assert 90 <= a.waiting <= (now() - early).total_seconds()
    assert (a.ended[-1], a.ended[-31], len(a.ended)) == (8, 5, 60)
    assert (round(a.p50 or 0), round(a.p95 or 0)) == (2, 30)
    assert 2.6 < a.rate <= 4  # 8 in two to three minutes
    assert (seen.dead, [schedule.name for schedule in seen.schedules]) == (2, ["nightly"])
    workers = [(worker.name, worker.version, worker.quiet) for worker in seen.workers]
    assert workers == [("mailer", "1.2", False), ("", "", True)]
    assert sum(period.succeeded for period in seen.hour) == sum(period.succeeded for period in seen.day) == 11
    assert [seen.hour[-1].failed, seen.hour[-1].died] == [4, 2]
    text = page(OVERVIEW)
    assert_shows(text, "mailer", "web1:77", "3 / 8", "1.2", "quiet", "nightly", "shop.nightly")
    assert_shows(text, "2 died", "4 failed", "Dead letters: 2")
    assert "11 succeeded, 4 attempts failed, 2 died; the peak was 6 at" in text


@each_database
def test_how_fast_works_arrive_and_end_is_measured_over_the_last_minutes():
    enqueue_many([add(a=1, b=n) for n in range(6)])
    WorkFactory(type="shop.add", queued_at=now() - timedelta(minutes=30))
    ended("shop.add", succeeded=9, back=1)
    ended("shop.add", succeeded=900, back=20)
    [type] = overview().types
    assert 2 <= type.arriving <= 3
    assert 3 <= type.rate <= 4.5


def test_a_paused_queue_or_type_is_shown_even_if_nothing_waits(page):
    WorkControlFactory(name="shop.paused")
    WorkControlFactory(scope="queue", name="held")
    text = page(OVERVIEW)
    assert_shows(text, "shop.paused", "held")
    assert text.count(">Resume<") == 2


def test_hostile_names_stay_text(page):
    places = ("type", "queue", "worker", "host", "version", "trouble", "schedule", "function", "error")
    hostile = {place: f'<b>{place}</b>"\' onload="x' for place in places}
    columns = {column: hostile[column] for column in ("host", "version", "trouble")}
    WorkerProcessFactory(name=hostile["worker"], queues=hostile["queue"], **columns)
    WorkFactory(type=hostile["type"], queue=hostile["queue"])
    columns = {column: hostile[column] for column in ("function", "error")}
    ScheduleFactory(name=hostile["schedule"], due_at=now(), failures=1, **columns)
    ended(hostile["type"], succeeded=1)
    text = page(OVERVIEW)
    assert_shows(text, *(f"&lt;b&gt;{place}&lt;/b&gt;&quot;&#x27; onload" for place in places))
    assert_hides(text, *(f"<b>{place}" for place in places))


# Bounds and cost


@each_database
def test_a_long_name_may_break_after_its_dots_and_underscores(page):
    WorkFactory(type="shop.send_receipts", queue="late-mail")
    assert_shows(page(OVERVIEW), ">shop.<wbr>send_<wbr>receipts<", ">late-<wbr>mail<")


def test_counts_stop_at_their_bounds(monkeypatch, page):
    monkeypatch.setattr(reading, "COUNTED_FIRST", 2)
    monkeypatch.setattr(reading, "COUNTED_IN_ALL", 8)
    for type, number in (("shop.a", 9), ("shop.b", 5), ("shop.c", 1)):
        WorkFactory.create_batch(number, type=type)
    found = {type.type: (type.pending, type.capped) for type in overview().types}
    assert found == {"shop.a": (5, ("pending",)), "shop.b": (5, ("pending",)), "shop.c": (1, ())}
    assert "No worker is running, and 11+ works wait." in page(OVERVIEW)


@each_database
def test_so_many_queues_and_types_are_looked_at_and_the_page_says_that_there_are_more(monkeypatch, page):
    monkeypatch.setattr(reading, "MOST_QUEUES", 3)
    monkeypatch.setattr(reading, "MOST_TYPES", 3)
    for number in range(5):
        WorkFactory(type=f"shop.type{number}", queue=f"q{number}")
    assert page(OVERVIEW).count("The first 3; there are more.") == 2
    assert backlog.first_lanes(2) == ([("q0", "shop.type0"), ("q1", "shop.type1")], True)
    assert backlog.first_lanes(5)[1] is False


@pytest.mark.vendors("mysql")
def test_large_lanes_are_looked_for_by_so_many_statements(monkeypatch):
    WorkFactory.create_batch(201, type="shop.a")
    WorkFactory(type="shop.b")
    assert len(backlog.first_lanes(10)[0]) == 2
    monkeypatch.setattr(backlog, "MOST_STATEMENTS", 1)
    assert backlog.first_lanes(10) == ([("default", "shop.a")], True)


def test_the_number_of_queries_does_not_grow(operator, django_assert_max_num_queries):
    for number in range(12):
        type = f"shop.type{number}"
        WorkFactory(type=type, queue=f"q{number % 4}")
        WorkFactory(type=type, status="success", started_at=now())
        WorkControlFactory(name=type)
        WorkerProcessFactory(queues=f"q{number}")
        ScheduleFactory(name=f"s{number}", due_at=now(), failures=1)
        ended(type, succeeded=1)
    operator.get(address(OVERVIEW))
    with django_assert_max_num_queries(30):
        operator.get(address(OVERVIEW))


# The fragment


def test_the_page_refreshes_itself_by_a_fragment_that_comes_anew_only_when_it_has_changed(operator, page):
    WorkFactory(queue="exports", run_at=now() + timedelta(days=1), status="blocked")
    text = page(OVERVIEW)
    assert_shows(text, f'data-live="{address(OVERVIEW)}?fragment"', "data-live-pause")
    assert '<a href="" data-live-reload>Reload</a>' in text, "for those without scripts"
    url = address(OVERVIEW, fragment="")
    first = operator.get(url)
    assert first.status_code == 200
    assert_hides(first.content.decode(), "csrfmiddlewaretoken", "<html")
    assert operator.get(url, headers={"If-None-Match": first["ETag"]}).status_code == 304
    WorkFactory(queue="exports")
    changed = operator.get(url, headers={"If-None-Match": first["ETag"]})
    assert changed.status_code == 200
    assert "No worker is running, and 1 work waits." in changed.content.decode()
    WorkerProcessFactory(queues="mail")
    for _ in range(2):  # what is read out does not change with the figures
        WorkFactory(queue="exports")
        board = operator.get(address(OVERVIEW)).context["board"]
        assert board["announced"] == "No worker serves a queue: exports"


# Who may look


@pytest.mark.parametrize(
    ("codenames", "status"),
    [((), 403), (("view_work",), 403), (("view_overview",), 200), (("change_workcontrol",), 403)],
)
def test_only_those_who_may_view_the_overview_see_it(client_with, client, codenames, status):
    staff = client_with(*codenames)
    for url in (address(OVERVIEW), address(OVERVIEW, fragment="")):
        assert staff.get(url).status_code == status
        assert "login" in client.get(url)["Location"]


def test_pages_that_the_user_may_not_open_are_named_without_links(client_with):
    WorkFactory(queue="exports")
    WorkerProcessFactory(queues="mail", name="mailer")
    text = client_with("view_overview").get(address(OVERVIEW)).content.decode()
    assert "mailer" in text
    pages = ("work_changelist", "deadletter_changelist", "workerprocess_changelist")
    assert_hides(text, *map(address, pages), "formaction")


def test_the_index_of_the_app_leads_to_it_and_there_is_no_other_page(operator):
    for url in (address(OVERVIEW), "/admin/", "/admin/django_ayework/"):
        assert f'href="{address(OVERVIEW)}"' in operator.get(url).content.decode()
    for page in ("add/", "1/change/", "1/history/", "1/delete/"):
        assert operator.get(address(OVERVIEW) + page).status_code == 404


def own_site():
    from django_ayework.admin.overview import OverviewAdmin

    site = AdminSite(name="desk")
    site.register(Overview, OverviewAdmin)
    return site


urlpatterns = [path("desk/", own_site().urls)]


def test_it_works_on_a_site_of_the_projects_own(settings, client):
    settings.ROOT_URLCONF = __name__
    client.force_login(get_user_model().objects.create_superuser("chief"))
    WorkFactory(queue="exports")
    response = client.get("/desk/django_ayework/overview/")
    assert response.status_code == 200
    assert "/desk/django_ayework/overview/control/" in response.content.decode()
    posted = client.post("/desk/django_ayework/overview/control/?scope=queue&name=exports&act=pause")
    assert (posted.status_code, posted["Location"]) == (302, "/desk/django_ayework/overview/")
    assert WorkControl.objects.get(scope="queue", name="exports").paused


@each_database
def test_each_queue_type_and_status_with_works_has_a_count():
    assert work_counts() == []
    places = [("default", "shop.add", "pending"), ("default", "shop.add", "success")]
    places += [("default", "shop.pay", status) for status in ("blocked", "cancelled", "dead", "running")]
    places += [("mail", "shop.add", "pending"), ("mail", "shop.notify", "scheduled")]
    for queue, type, status in [*reversed(places), places[1]]:
        WorkFactory(queue=queue, type=type, status=status)
    expected = [WorkCount(*place[:2], Status(place[2]), 1 + (place == places[1])) for place in places]
    assert work_counts() == async_to_sync(awork_counts)() == expected


@each_database
def test_counts_are_bounded_and_say_so(monkeypatch):
    for room in (counts, reading):
        monkeypatch.setattr(room, "COUNTED_IN_ALL", 4)
    for status in ("pending", "scheduled", "success"):
        WorkFactory.create_batch(6, status=status)
        WorkFactory(status=status, type="shop.pay", queue="mail")
    found = {each.place: (each.works, each.capped) for each in work_counts()}
    assert found["default", "shop.add", "pending"] == (4, True)
    assert found["mail", "shop.pay", "pending"] == (1, False)
    assert found["default", "shop.add", "success"] == (2, True)
    assert found["mail", "shop.pay", "success"] == (1, False)
    scheduled = [value for place, value in found.items() if place[2] == "scheduled"]
    assert sum(works for works, _ in scheduled) == 4
    assert all(capped for _, capped in scheduled)
