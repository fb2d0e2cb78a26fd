"""The pages of the audit, and its progress."""

from datetime import timedelta
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_ayework import Status
from example_project.audit import progress
from example_project.audit.models import Audit, Package
from example_project.audit.progress import Phase, progress_of

pytestmark = pytest.mark.django_db
REPORT = {
    "totals": {
        **{"packages": 2, "files": 1234, "size": 4096, "lines": 77},
        **{"broken": 1, "unrecorded": 1, "uninspected": 1},
    },
    "largest": [
        {"name": "big & wide", "version": "1.0", "size": 4096, "lines": 70},
        {"name": "small", "version": "2", "size": 1024, "lines": 7},
    ],
    "licences": [{"name": "MIT", "packages": 2}],
    "broken": [{"package": "small 2", "path": "<b>.py", "kind": "missing", "detail": ""}],
    "unrecorded": ["bare 3"],
}


def state(status, attempt=1, error=None, reason=None):
    return SimpleNamespace(type="audit.x", status=status, attempt=attempt, error=error, reason=reason)


@pytest.fixture
def states(monkeypatch):
    """The states of works by id, that of an audit being "root"; the database has no other works."""
    known = {"root": state(Status.pending, 0)}
    monkeypatch.setattr(progress, "get_handle", lambda id: SimpleNamespace(state=lambda: known.get(id)))
    return known


@pytest.fixture
def live(client):
    """What the page of an audit asks for now and then."""
    return lambda audit: client.get(reverse("audit:live", args=[audit.pk])).content.decode()


def test_the_first_page_has_a_button_and_the_audits(client):
    finished, running = Audit.objects.create(report=REPORT), Audit.objects.create()
    page = client.get(reverse("audit:index")).content.decode()
    for text in ("csrfmiddlewaretoken", finished.get_absolute_url(), running.get_absolute_url(), "1,234"):
        assert text in page


def test_the_button_starts_an_audit_and_shows_it_and_wants_post_and_a_token(client):
    strict = Client(enforce_csrf_checks=True)
    assert strict.get(reverse("audit:create")).status_code == 405
    assert strict.post(reverse("audit:create")).status_code == 403
    assert not Audit.objects.exists()
    for name in ("audit:detail", "audit:live"):
        assert client.get(reverse(name, args=[404])).status_code == 404
    response = client.post(reverse("audit:create"))
    audit = Audit.objects.get()
    assert audit.work_id
    assert (response.status_code, response["Location"]) == (302, audit.get_absolute_url())
    assert client.get(response["Location"]).status_code == 200


def test_an_audit_asks_for_a_worker_counts_packages_and_shows_a_failure(states, live, monkeypatch):
    audit = Audit.objects.create(work_id="root")
    assert "ayework_worker" not in live(audit)
    monkeypatch.setattr(progress, "PATIENCE", -1)
    assert "python manage.py ayework_worker" in live(audit)
    audit.expected = 4
    audit.save()
    audit.packages.create(location="x", name="demo", version="1.0", files=3)
    fragment = live(audit)
    assert "1 of 4 packages, 25%" in fragment
    assert 'value="1" max="4"' in fragment
    assert "data-ended" not in fragment
    assert "<html" not in fragment
    states["root"] = state(Status.dead, error="boom <tag>")
    fragment = live(audit)
    assert "boom &lt;tag&gt;" in fragment
    assert "data-ended" in fragment


def test_the_report_is_on_the_page_with_a_chart_that_has_a_description_in_every_language(
    client, live, settings
):
    audit = Audit.objects.create(report=REPORT)
    page = client.get(audit.get_absolute_url()).content.decode()
    for text in ("data-ended", "1,234", "4.0\xa0KB", "MIT", "&lt;b&gt;.py", "bare 3", "1 package could not"):
        assert text.replace("\xa0", " ") in page
    assert "<noscript>" not in page
    fragment = live(audit)
    svg = ElementTree.fromstring(fragment[fragment.index("<svg") : fragment.index("</svg>") + 6])
    spaces = {"svg": "http://www.w3.org/2000/svg"}
    labelled = svg.attrib["aria-labelledby"].split()
    assert labelled == [element.attrib["id"] for element in svg if "id" in element.attrib]
    assert svg.findtext("svg:desc", namespaces=spaces) == "big & wide 1.0: 4.0 KB; small 2: 1.0 KB"
    widths = [bar.attrib["width"] for bar in svg.findall(".//svg:rect[@class='bar']", spaces)]
    assert widths == ["100.0%", "25.0%"]
    settings.LANGUAGE_CODE = "de"
    assert 'width="25.0%"' in live(audit)


def audit_of(expected=None, packages=0, age=0.0):
    report_id = "report" if expected else ""
    audit = Audit.objects.create(work_id="root", report_work_id=report_id, expected=expected)
    audit.created_at = timezone.now() - timedelta(seconds=age)
    for number in range(packages):
        Package.objects.create(audit=audit, location=str(number), name="x")
    return audit


@pytest.mark.parametrize(("attempt", "age", "lonely"), [(0, 0, False), (0, 10, True), (1, 10, False)])
def test_waiting(states, attempt, age, lonely):
    states["root"] = state(Status.pending, attempt)
    found = progress_of(audit_of(age=age))
    assert (found.phase, found.lonely, found.percent) == (Phase.WAITING, lonely, 0)


@pytest.mark.parametrize(
    ("packages", "report", "phase", "percent"),
    [
        (0, None, Phase.INSPECTING, 0),
        (3, None, Phase.INSPECTING, 75),
        (4, None, Phase.REPORTING, 100),
        (3, {}, Phase.FINISHED, 100),  # without a look at the works
    ],
)
def test_running(states, packages, report, phase, percent):
    states.clear()
    if report is None:
        states |= {"root": state(Status.success), "report": state(Status.blocked, 0)}
    audit = audit_of(expected=4, packages=packages)
    audit.report = report
    found = progress_of(audit)
    assert (found.phase, found.percent, found.ended) == (phase, percent, report is not None)
    assert report is not None or (found.done, found.total) == (packages, 4)


@pytest.mark.parametrize(
    ("works", "problem"),
    [
        ({}, "no longer in the database"),
        ({"root": state(Status.dead, error="boom")}, "boom"),
        ({"root": state(Status.dead, reason="expired")}, "expired"),
        ({"root": state(Status.cancelled)}, "is cancelled"),
        ({"root": state(Status.success), "report": state(Status.dead, error="late boom")}, "late boom"),
    ],
)
def test_failed(states, works, problem):
    states.clear()
    states |= works
    found = progress_of(audit_of(expected=2))
    assert found.phase is Phase.FAILED
    assert problem in found.problem
