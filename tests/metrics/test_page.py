"""The page of metrics: its gauges, the view, a database that is away, and what may be missing."""

import sys
import tempfile
from asyncio import CancelledError
from datetime import timedelta
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from django.apps import apps as django_apps
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections

import django_ayework.contrib.prometheus as package
from django_ayework import dependency, enqueue
from django_ayework.conf import get_settings
from django_ayework.contrib.prometheus import apps, series
from django_ayework.contrib.prometheus.page import exporter
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow import counts
from django_ayework.models import Work
from django_ayework.store import backlog
from django_ayework.store.database import clock
from django_ayework.testing import drain, time_travel
from django_ayework.testing.factories import DeadLetterFactory, WorkerProcessFactory, WorkFactory
from django_ayework.worker.http import MetricsServer, Response
from tests.app.works import add
from tests.marks import each_database
from tests.metrics.kit import page, samples_of, value

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
ADD, MAIL = {"type": "shop.add", "queue": "default"}, {"type": "shop.notify", "queue": "mail"}


@each_database
def test_the_gauges_show_works_by_type_and_queue():
    now = clock.now()
    WorkFactory.create_batch(2)
    WorkFactory(type="shop.notify", queue="mail", run_at=now - timedelta(minutes=10))
    WorkFactory(status="scheduled", run_at=now + timedelta(hours=1))
    WorkFactory(status="scheduled", type="shop.pay", run_at=now - timedelta(minutes=5))
    lease = {"worker": "w", "leased_until": now + timedelta(minutes=1), "started_at": now, "attempt": 1}
    WorkFactory.create_batch(3, status="running", **lease)
    WorkFactory(status="success")
    DeadLetterFactory.create_batch(2, type="shop.notify", queue="mail")
    DeadLetterFactory(type="gone.one", queue="q1")
    DeadLetterFactory(type="gone.two", queue="q2")
    WorkerProcessFactory(stopped_at=None)
    WorkerProcessFactory(stopped_at=now)
    seen = page()
    assert value(seen, "waiting_works", **ADD) == 2
    assert value(seen, "waiting_works", **MAIL) == 1
    assert value(seen, "waiting_works") == 3
    assert 0 <= value(seen, "oldest_waiting_seconds", **ADD) < 60
    assert 600 <= value(seen, "oldest_waiting_seconds", **MAIL) < 660
    assert 300 <= value(seen, "oldest_waiting_seconds", type="shop.pay") < 360  # no worker looked
    assert value(seen, "scheduled_works", **ADD) == value(seen, "live_workers") == 1
    assert value(seen, "running_works", **ADD) == value(seen, "running_works") == 3
    assert value(seen, "dead_works", **MAIL) == 2
    assert value(seen, "dead_works", type="unknown", queue="other") == 2
    assert value(seen, "blocked_works") == 0
    Work.objects.all().delete()
    assert page()["ayework_waiting_works", frozenset(MAIL.items())] == 0  # no gap


@each_database
def test_a_pair_whose_works_were_not_counted_has_no_gauge_instead_of_0(monkeypatch):
    now = clock.now()
    WorkFactory.create_batch(2, type="shop.notify", queue="mail")
    WorkFactory(status="scheduled", type="shop.notify", queue="mail", run_at=now + timedelta(hours=2))
    assert value(page(), "waiting_works", **MAIL) == 2
    assert value(page(), "scheduled_works", **MAIL) == 1
    WorkFactory()
    WorkFactory.create_batch(2, status="scheduled", run_at=now + timedelta(hours=1))
    monkeypatch.setattr(counts, "MOST_LANES", 1)
    monkeypatch.setattr(counts, "MOST_COUNTED", 2)
    seen = page()
    for name in ("waiting_works", "oldest_waiting_seconds", "scheduled_works"):
        assert (f"ayework_{name}", frozenset(ADD.items())) in seen
        assert (f"ayework_{name}", frozenset(MAIL.items())) not in seen


def test_a_page_takes_a_bounded_number_of_statements(django_assert_max_num_queries):
    for number in range(30):
        WorkFactory(queue=f"q{number}")
        DeadLetterFactory(queue=f"q{number}")
    with django_assert_max_num_queries(12):
        page()


def test_without_the_database_the_page_has_what_was_counted(counted, monkeypatch):
    def away(*args):
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(backlog, "dead_depths", away)
    text = exporter.page().body.decode()
    assert "ayework_works_queued_total" in text
    assert "ayework_waiting_works" not in text
    assert counted("scrape_errors") == 1
    monkeypatch.undo()
    assert "ayework_waiting_works" in exporter.page().body.decode()


@pytest.mark.parametrize("kind", [LookupError, CancelledError, SystemExit])
def test_a_collector_of_the_project_that_raises_costs_one_page(kind):
    """The thread that answers goes on."""
    pages = [kind("no figures"), Response(200, "text/plain", b"figures")]

    def page() -> Response:
        if isinstance(found := pages.pop(0), BaseException):
            raise found
        return found

    server = MetricsServer("127.0.0.1", 0, SimpleNamespace(page=page))
    server.serve_in_thread()
    with pytest.raises(HTTPError, match="500"):
        urlopen(f"{server.url}/metrics", timeout=10)
    with urlopen(f"{server.url}/metrics", timeout=10) as answer:
        assert answer.read() == b"figures"


@pytest.mark.vendors("postgresql", "mysql")
def test_the_page_of_a_worker_waits_for_a_silent_server_for_less_than_prometheus_waits_for_the_page():
    def page() -> Response:
        return Response(
            200, "text/plain", str(connection.settings_dict["OPTIONS"]["connect_timeout"]).encode()
        )

    server = MetricsServer("127.0.0.1", 0, SimpleNamespace(page=page))
    server.close()
    assert int(server.respond("/metrics").body) < 10


@pytest.mark.vendors("postgresql")
@pytest.mark.django_db(transaction=True)
def test_the_page_of_a_worker_waits_for_no_lock(counted):
    server = MetricsServer("127.0.0.1", 0, exporter)
    server.close()
    other = connections.create_connection("default")
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN; LOCK TABLE django_ayework_work IN ACCESS EXCLUSIVE MODE")
        body = server.respond("/metrics").body.decode()
    finally:
        other.close()
    assert counted("scrape_errors") == 1
    assert "ayework_waiting_works" not in body
    assert "ayework_waiting_works" in server.respond("/metrics").body.decode()


def test_a_worker_starts_the_counters_of_failures_at_0_so_that_the_first_death_is_an_increase(counted):
    """Also that of a gate, or of an unknown type."""

    def deaths():
        return {
            labels: number for (name, labels), number in page().items() if name.endswith("works_dead_total")
        }

    series.DEAD.clear()
    series.begin()
    before = deaths()
    assert frozenset({("type", "shop.notify"), ("queue", "mail"), ("reason", "exhausted")}) in before
    assert counted("workers_started") == 1
    enqueue(dependency(on=["gone"], queue=[add(a=1, b=2)], timeout=60))
    WorkFactory(type="shop.gone", queue="mail")
    for _ in range(2):
        time_travel(timedelta(days=7))
        drain(raises=False)
    died = {labels for labels, number in deaths().items() if number}
    assert {dict(labels)["type"] for labels in died} == {GATE_TYPE, "unknown"}
    assert died <= before.keys()


@pytest.fixture
def in_urls(settings):
    settings.ROOT_URLCONF = "tests.metrics.urls"
    settings.AYEWORK = {"METRICS_TOKEN": "s3cret"}


@pytest.mark.usefixtures("in_urls")
def test_the_view_shows_the_page_for_the_token_and_for_staff_that_may_see_works(client, settings):
    def status(as_user=None, **headers):
        client.logout()
        if as_user is not None:
            client.force_login(as_user)
        return client.get("/metrics/", headers=headers).status_code

    names = ("user", "staff", "allowed")
    user, staff, allowed = (User.objects.create(username=name, is_staff=name != "user") for name in names)
    allowed.user_permissions.set(Permission.objects.filter(codename="view_work"))
    assert status(authorization="Bearer s3cret") == status(allowed) == 200
    for refused in ("Bearer other", "Bearer ", "s3cret", "Basic s3cret"):
        assert status(authorization=refused) == 403
    assert status() == status(user) == status(staff) == 403
    WorkFactory()
    response = client.get("/metrics/", headers={"authorization": "Bearer s3cret"})
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert "no-store" in response.headers["Cache-Control"]
    assert value(samples_of(response.content.decode()), "waiting_works", **ADD) == 1
    settings.AYEWORK = {}
    assert status(authorization="Bearer ") == status(authorization="Bearer None") == 403
    assert client.get("/open/").status_code == 200
    assert client.post("/open/").status_code == 405


def test_a_token_that_is_none_is_refused_and_not_quoted(settings):
    settings.AYEWORK = {"METRICS_TOKEN": " "}
    with pytest.raises(ImproperlyConfigured, match=r"METRICS_TOKEN.*not empty, or None, got: an empty text"):
        get_settings()


def test_what_is_missing_or_comes_too_late_is_named(monkeypatch, tmp_path):
    assert not django_apps.is_installed("django_ayework.contrib.prometheus")
    with pytest.raises(CommandError, match=r"'django_ayework.contrib.prometheus' in INSTALLED_APPS"):
        call_command("ayework_worker", "--metrics-port", "0", "--burst")
    with pytest.raises(CommandError, match=r"'django_ayework.contrib.prometheus' in INSTALLED_APPS"):
        call_command("ayework_worker", "--metrics-port", "0", "--check")
    assert series.QUEUED is not None, "the client is imported, so processes can share no more"
    with pytest.raises(ImproperlyConfigured, match="PROMETHEUS_MULTIPROC_DIR"), exporter.shared():
        pass
    monkeypatch.delitem(sys.modules, "prometheus_client")
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ImproperlyConfigured, match=r"missing.*Set TMPDIR"), exporter.shared():
        pass
    monkeypatch.setattr(apps, "find_spec", lambda name: None)
    config = apps.PrometheusConfig("django_ayework.contrib.prometheus", package)
    with pytest.raises(ImproperlyConfigured, match=r"pip install \"django-ayework\[metrics\]\""):
        config.ready()
