"""The pages of the audit, and its progress."""

from __future__ import annotations

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
TOTALS = {
    "packages": 2, "files": 1234, "size": 4096, "lines": 77, "broken": 1, "unrecorded": 1, "uninspected": 1
}  # fmt: skip
REPORT = {
    "totals": TOTALS,
    "largest": [
        {"name": "big & wide", "version": "1.0", "size": 4096, "lines": 70},
        {"name": "small", "version": "2", "size": 1024, "lines": 7},
    ],
    "licences": [{"name": "MIT", "packages": 2}],
    "broken": [{"package": "small 2", "path": "<b>.py", "kind": "missing", "detail": ""}],
    "unrecorded": ["bare 3"],
}


States = dict[str, SimpleNamespace]


def state(
    status: Status, attempt: int = 1, error: str | None = None, reason: str | None = None
) -> SimpleNamespace:
    return SimpleNamespace(type="audit.x", status=status, attempt=attempt, error=error, reason=reason)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> States:
    """The states of works by id; the database has no other works."""
    known: States = {}
    monkeypatch.setattr(progress, "get_handle", lambda id: SimpleNamespace(state=lambda: known.get(id)))
    return known


@pytest.fixture
def root(states: States) -> SimpleNamespace:
    """The state of the work of an audit."""
    states["root"] = state(Status.pending, 0)
    return states["root"]


def live(client: Client, audit: Audit) -> str:
    return client.get(reverse("audit:live", args=[audit.pk])).content.decode()


def test_the_first_page_has_a_button_and_the_audits(client: Client) -> None:
    finished, running = Audit.objects.create(report=REPORT), Audit.objects.create()
    page = client.get(reverse("audit:index")).content.decode()
    assert "csrfmiddlewaretoken" in page
    assert finished.get_absolute_url() in page
    assert running.get_absolute_url() in page
    assert "1,234" in page


def test_the_button_starts_an_audit_and_shows_it(client: Client) -> None:
    response = client.post(reverse("audit:create"))
    audit = Audit.objects.get()
    assert audit.work_id
    assert (response.status_code, response["Location"]) == (302, audit.get_absolute_url())
    assert client.get(response["Location"]).status_code == 200


def test_the_button_wants_post_and_a_token_and_a_page_its_audit(client: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    assert strict.get(reverse("audit:create")).status_code == 405
    assert strict.post(reverse("audit:create")).status_code == 403
    assert not Audit.objects.exists()
    for name in ("audit:detail", "audit:live"):
        assert client.get(reverse(name, args=[404])).status_code == 404


def test_an_audit_without_a_worker_asks_for_one(
    client: Client, root: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = Audit.objects.create(work_id="root")
    assert "ayework_worker" not in live(client, audit)
    monkeypatch.setattr(progress, "PATIENCE", -1)
    assert "python manage.py ayework_worker" in live(client, audit)


def test_progress_is_counted_in_packages(client: Client, root: SimpleNamespace) -> None:
    audit = Audit.objects.create(work_id="root", expected=4)
    audit.packages.create(location="x", name="demo", version="1.0", files=3)
    fragment = live(client, audit)
    assert "1 of 4 packages, 25%" in fragment
    assert 'value="1" max="4"' in fragment
    assert "data-ended" not in fragment
    assert "<html" not in fragment


def test_a_failure_is_shown_and_ends_the_asking(client: Client, root: SimpleNamespace) -> None:
    root.status, root.error = Status.dead, "boom <tag>"
    fragment = live(client, Audit.objects.create(work_id="root"))
    assert "boom &lt;tag&gt;" in fragment
    assert "data-ended" in fragment


def test_the_report_is_on_the_page(client: Client) -> None:
    audit = Audit.objects.create(report=REPORT)
    page = client.get(audit.get_absolute_url()).content.decode()
    for text in ("data-ended", "1,234", "4.0\xa0KB", "MIT", "&lt;b&gt;.py", "bare 3", "1 package could not"):
        assert text.replace("\xa0", " ") in page
    assert "<noscript>" not in page


def test_the_chart_is_well_formed_and_has_a_description_in_every_language(
    client: Client, settings: SimpleNamespace
) -> None:
    audit = Audit.objects.create(report=REPORT)
    page = live(client, audit)
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    spaces = {"svg": "http://www.w3.org/2000/svg"}
    labelled = svg.attrib["aria-labelledby"].split()
    assert labelled == [element.attrib["id"] for element in svg if "id" in element.attrib]
    assert svg.findtext("svg:desc", namespaces=spaces) == "big & wide 1.0: 4.0 KB; small 2: 1.0 KB"
    widths = [bar.attrib["width"] for bar in svg.findall(".//svg:rect[@class='bar']", spaces)]
    assert widths == ["100.0%", "25.0%"]
    settings.LANGUAGE_CODE = "de"
    assert 'width="25.0%"' in live(client, audit)


def audit_of(expected: int | None = None, packages: int = 0, age: float = 0) -> Audit:
    audit = Audit.objects.create(
        work_id="root", report_work_id="report" if expected else "", expected=expected
    )
    audit.created_at = timezone.now() - timedelta(seconds=age)
    for number in range(packages):
        Package.objects.create(audit=audit, location=str(number), name="x")
    return audit


@pytest.mark.parametrize(("attempt", "age", "lonely"), [(0, 0, False), (0, 10, True), (1, 10, False)])
def test_waiting(states: States, attempt: int, age: float, lonely: bool) -> None:
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
def test_running(
    states: States, packages: int, report: dict[str, int] | None, phase: Phase, percent: int
) -> None:
    if report is None:
        states |= {"root": state(Status.success), "report": state(Status.blocked, 0)}
    audit = audit_of(expected=4, packages=packages)
    audit.report = report
    found = progress_of(audit)
    assert (found.phase, found.percent, found.ended) == (phase, percent, report is not None)
    assert report is not None or (found.done, found.total) == (packages, 4)


@pytest.mark.parametrize(
    ("root", "report", "problem"),
    [
        (None, None, "no longer in the database"),
        (state(Status.dead, error="boom"), None, "boom"),
        (state(Status.dead, reason="expired"), None, "expired"),
        (state(Status.cancelled), None, "is cancelled"),
        (state(Status.success), state(Status.dead, error="late boom"), "late boom"),
    ],
)
def test_failed(
    states: States, root: SimpleNamespace | None, report: SimpleNamespace | None, problem: str
) -> None:
    states |= {name: found for name, found in (("root", root), ("report", report)) if found}
    found = progress_of(audit_of(expected=2))
    assert found.phase is Phase.FAILED
    assert problem in found.problem
