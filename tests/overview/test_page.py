"""The overview in the admin: what it shows, to whom, at which cost; and that names stay text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import path

from django_ayework import enqueue_many
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow import overview as reading
from django_ayework.flow.overview import overview
from django_ayework.models import Overview, Work, WorkControl, WorkerProcess
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
from tests.admin.kit import address, assert_hides, assert_shows
from tests.app.works import add

pytestmark = pytest.mark.django_db


def minute(back: int = 0) -> Any:
    return span_start(now(), 60) - timedelta(minutes=back)


def ended(type: str, *, back: int = 0, queue: str = "default", **counts: int) -> None:
    throughput.add({Bucket(minute(back), type, queue): Ended(**counts)})


# What is shown


def test_the_first_page_says_in_one_sentence_why_nothing_is_processed(page: Callable[..., str]) -> None:
    WorkFactory.create_batch(3, queue="exports")
    WorkerProcessFactory(queues="mail")
    text = page("overview_changelist")
    sentence = "exports: 3 works wait, and no live worker serves the queue."
    assert text.count(sentence) == 1
    assert text.index("<h2") < text.index(sentence) < text.index("</h2>")
    assert_shows(text, "Start one: manage.py ayework_worker --queues exports", "by nobody")


def test_the_index_of_the_app_leads_to_it(operator: Client) -> None:
    for url in (address("overview_changelist"), "/admin/", "/admin/django_ayework/"):
        assert f'href="{address("overview_changelist")}"' in operator.get(url).content.decode()


def test_a_type_that_floods_comes_first_with_its_share(operator: Client) -> None:
    WorkerProcessFactory(running=1)
    WorkFactory.create_batch(30, type="shop.small")
    flood = WorkFactory.build_batch(1200, type="shop.flood", queue="mail")
    Work.objects.bulk_create(flood)
    response = operator.get(address("overview_changelist"))
    types = response.context["board"].tables[0]
    assert "shop.flood" in types.rows[0].head
    waiting = types.rows[0].cells[0].value
    assert_shows(waiting, ">1,200<", "98%")
    assert response.context["board"].headline.code == "type_floods"
    assert "Pause shop.flood" in response.content.decode()


def test_all_is_not_said_to_be_well_while_works_are_dead(page: Callable[..., str]) -> None:
    WorkerProcessFactory()
    assert "ayework-well" in page("overview_changelist")
    DeadLetterFactory.create_batch(2)
    text = page("overview_changelist")
    headline = text.partition("<h2")[2].partition("</div>")[0]
    assert_shows(headline, "2 works are dead", "Mend the cause", f'href="{address("deadletter_changelist")}"')
    assert_hides(text, "All is well", "ayework-well")


def test_gates_that_died_have_the_name_of_all_pages(page: Callable[..., str]) -> None:
    WorkerProcessFactory()
    DeadLetterFactory.create_batch(5, type=GATE_TYPE, ended_at=now())
    text = page("overview_changelist")
    assert "5 works died during the last 10 min: gate (5)." in text
    assert GATE_TYPE not in text


def test_works_whose_type_no_worker_knows_are_a_problem_after_a_minute() -> None:
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
    assert headline.text.startswith("shop.addd: 1 work waits, the oldest for 1 min 20 s, and no worker that")
    assert_shows(headline.remedy, "Did you mean 'shop.add'?", '@work(name="shop.addd")')


def test_the_figures_are_those_of_the_command(operator: Client) -> None:
    WorkerProcessFactory(name="mailer", host="web1", pid=77, running=3, version="1.2", queues="mail")
    WorkerProcessFactory(host="web2", quiet=True)
    WorkFactory.create_batch(2, type="shop.a", run_at=now() - timedelta(seconds=90))
    WorkFactory(type="shop.a", status="running")
    WorkFactory(type="shop.a", status="scheduled", run_at=now() + timedelta(hours=1))
    WorkFactory(type="shop.a", status="blocked")
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
    assert (a.failed, a.died, round(a.waiting), sum(a.ended), sum(a.failures)) == (4, 2, 90, 13, 6)
    assert (a.ended[-1], a.ended[-31], len(a.ended)) == (8, 5, 60)
    assert (round(a.p50 or 0), round(a.p95 or 0)) == (2, 30)
    assert 2.6 < a.rate <= 4  # 8 in two to three minutes
    assert (seen.dead, [schedule.name for schedule in seen.schedules]) == (2, ["nightly"])
    assert [(worker.name, worker.version, worker.quiet) for worker in seen.workers] == [
        ("mailer", "1.2", False),
        ("", "", True),
    ]
    assert sum(period.succeeded for period in seen.hour) == sum(period.succeeded for period in seen.day) == 11
    assert [seen.hour[-1].failed, seen.hour[-1].died] == [4, 2]
    text = operator.get(address("overview_changelist")).content.decode()
    assert_shows(text, "mailer", "web1:77", "3 / 8", "1.2", "quiet", "nightly", "shop.nightly")
    assert_shows(text, "2 died", "4 failed", "Dead letters: 2")
    assert "11 succeeded, 4 attempts failed, 2 died; the peak was 6 at" in text


def test_how_fast_works_arrive_and_end_is_measured_over_the_last_minutes() -> None:
    enqueue_many([add(a=1, b=n) for n in range(6)])
    WorkFactory(type="shop.add", queued_at=now() - timedelta(minutes=30))
    ended("shop.add", succeeded=9, back=1)
    ended("shop.add", succeeded=900, back=20)
    [type] = overview().types
    assert 2 <= type.arriving <= 3
    assert 3 <= type.rate <= 4.5


def test_counts_stop_at_their_bounds(monkeypatch: pytest.MonkeyPatch, page: Callable[..., str]) -> None:
    monkeypatch.setattr(reading, "COUNTED_FIRST", 2)
    monkeypatch.setattr(reading, "COUNTED_IN_ALL", 8)
    WorkFactory.create_batch(9, type="shop.a")
    WorkFactory.create_batch(5, type="shop.b")
    WorkFactory(type="shop.c")
    found = {type.type: (type.pending, type.capped) for type in overview().types}
    assert found == {"shop.a": (5, ("pending",)), "shop.b": (5, ("pending",)), "shop.c": (1, ())}
    assert "No worker is running, and 11+ works wait." in page("overview_changelist")


def test_so_many_queues_and_types_are_shown_and_the_page_says_that_there_are_more(
    monkeypatch: pytest.MonkeyPatch, page: Callable[..., str]
) -> None:
    monkeypatch.setattr(reading, "MOST_QUEUES", 3)
    monkeypatch.setattr(reading, "MOST_TYPES", 3)
    for number in range(5):
        WorkFactory(type=f"shop.type{number}", queue=f"q{number}")
    assert page("overview_changelist").count("The first 3; there are more.") == 2


def test_so_many_lanes_are_looked_at_and_it_is_known_that_there_are_others() -> None:
    for number in range(3):
        WorkFactory(type=f"shop.type{number}", queue=f"q{number}")
    assert backlog.first_lanes(2) == ([("q0", "shop.type0"), ("q1", "shop.type1")], True)
    assert backlog.first_lanes(3)[1] is False


@pytest.mark.vendors("mysql")
def test_large_lanes_are_looked_for_by_so_many_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    WorkFactory.create_batch(201, type="shop.a")
    WorkFactory(type="shop.b")
    assert len(backlog.first_lanes(10)[0]) == 2
    monkeypatch.setattr(backlog, "MOST_STATEMENTS", 1)
    assert backlog.first_lanes(10) == ([("default", "shop.a")], True)


def test_a_paused_queue_or_type_is_shown_even_if_nothing_waits(page: Callable[..., str]) -> None:
    WorkControlFactory(name="shop.paused")
    WorkControlFactory(scope="queue", name="held")
    text = page("overview_changelist")
    assert_shows(text, "shop.paused", "held")
    assert text.count(">Resume<") == 2


def test_hostile_names_stay_text(page: Callable[..., str]) -> None:
    places = ("type", "queue", "worker", "host", "version", "trouble", "schedule", "function", "error")
    hostile = {place: f'<b>{place}</b>"\' onload="x' for place in places}
    WorkerProcessFactory(
        name=hostile["worker"],
        queues=hostile["queue"],
        **{column: hostile[column] for column in ("host", "version", "trouble")},
    )
    WorkFactory(type=hostile["type"], queue=hostile["queue"])
    columns = {column: hostile[column] for column in ("function", "error")}
    ScheduleFactory(name=hostile["schedule"], due_at=now(), failures=1, **columns)
    ended(hostile["type"], succeeded=1)
    text = page("overview_changelist")
    assert_shows(text, *(f"&lt;b&gt;{place}&lt;/b&gt;&quot;&#x27; onload" for place in places))
    assert_hides(text, *(f"<b>{place}" for place in places))


# The fragment


def test_the_fragment_comes_anew_only_when_it_has_changed(operator: Client) -> None:
    WorkFactory(queue="exports", run_at=now() + timedelta(days=1), status="blocked")
    url = address("overview_changelist", fragment="")
    first = operator.get(url)
    assert first.status_code == 200
    assert "csrfmiddlewaretoken" not in first.content.decode()
    assert "<html" not in first.content.decode()
    assert operator.get(url, headers={"If-None-Match": first["ETag"]}).status_code == 304
    WorkFactory(queue="exports")
    changed = operator.get(url, headers={"If-None-Match": first["ETag"]})
    assert changed.status_code == 200
    assert "No worker is running, and 1 work waits." in changed.content.decode()


def test_what_is_read_out_does_not_change_with_the_figures(operator: Client) -> None:
    WorkerProcessFactory(queues="mail")
    said = []
    for _ in range(2):
        WorkFactory(queue="exports")
        said.append(operator.get(address("overview_changelist")).context["board"].announced)
    assert said == ["No worker serves a queue: exports"] * 2


def test_the_page_refreshes_itself_and_has_a_link_for_those_without_scripts(page: Callable[..., str]) -> None:
    text = page("overview_changelist")
    assert_shows(text, f'data-live="{address("overview_changelist")}?fragment"', "data-live-pause")
    assert '<a href="" data-live-reload>Reload</a>' in text


# Who may look


@pytest.mark.parametrize(
    ("codenames", "status"),
    [((), 403), (("view_work",), 403), (("view_overview",), 200), (("change_workcontrol",), 403)],
)
def test_only_those_who_may_view_the_overview_see_it(
    client_with: Callable[..., Client], codenames: tuple[str, ...], status: int
) -> None:
    client = client_with(*codenames)
    assert client.get(address("overview_changelist")).status_code == status
    assert client.get(address("overview_changelist", fragment="")).status_code == status


def test_strangers_are_sent_to_sign_in(client: Client) -> None:
    response = client.get(address("overview_changelist"))
    assert response.status_code == 302
    assert "login" in response["Location"]


def test_pages_that_the_user_may_not_open_are_named_without_links(client_with: Callable[..., Client]) -> None:
    WorkFactory(queue="exports")
    WorkerProcessFactory(queues="mail", name="mailer")
    text = client_with("view_overview").get(address("overview_changelist")).content.decode()
    assert "mailer" in text
    for page in ("work_changelist", "deadletter_changelist", "workerprocess_changelist"):
        assert address(page) not in text
    assert "formaction" not in text


def test_there_is_no_other_page(operator: Client) -> None:
    for page in ("add/", "1/change/", "1/history/", "1/delete/"):
        assert operator.get(address("overview_changelist") + page).status_code == 404


def test_it_works_on_a_site_of_the_projects_own(settings: Any, client: Client) -> None:
    settings.ROOT_URLCONF = __name__
    client.force_login(get_user_model().objects.create_superuser("chief"))
    WorkFactory(queue="exports")
    response = client.get("/desk/django_ayework/overview/")
    assert response.status_code == 200
    assert "/desk/django_ayework/overview/control/" in response.content.decode()
    posted = client.post("/desk/django_ayework/overview/control/?scope=queue&name=exports&act=pause")
    assert (posted.status_code, posted["Location"]) == (302, "/desk/django_ayework/overview/")
    assert WorkControl.objects.get(scope="queue", name="exports").paused


def own_site() -> Any:
    from django.contrib.admin import AdminSite

    from django_ayework.admin.overview import OverviewAdmin

    site = AdminSite(name="desk")
    site.register(Overview, OverviewAdmin)
    return site


urlpatterns = [path("desk/", own_site().urls)]


# What it costs


def test_the_number_of_queries_does_not_grow(operator: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(12):
        WorkFactory(type=f"shop.type{number}", queue=f"q{number % 4}")
        WorkFactory(type=f"shop.type{number}", status="success", started_at=now())
        WorkControlFactory(name=f"shop.type{number}")
        WorkerProcessFactory(queues=f"q{number}")
        ScheduleFactory(name=f"s{number}", due_at=now(), failures=1)
        ended(f"shop.type{number}", succeeded=1)
    operator.get(address("overview_changelist"))
    with django_assert_max_num_queries(30):
        operator.get(address("overview_changelist"))
