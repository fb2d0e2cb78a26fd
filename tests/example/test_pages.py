"""The pages."""

from __future__ import annotations

from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from django.test import Client
from django.urls import reverse

from django_ayework import Status
from example_project.audit import progress
from example_project.audit.models import Audit

pytestmark = pytest.mark.django_db
TOTALS = {
    "packages": 2,
    "files": 1234,
    "size": 4096,
    "lines": 77,
    "broken": 1,
    "unrecorded": 1,
    "uninspected": 1,
}
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


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The state of every work."""
    state = SimpleNamespace(type="audit.x", status=Status.pending, attempt=0, error=None, reason=None)
    monkeypatch.setattr(progress, "get_handle", lambda id: SimpleNamespace(state=lambda: state))
    return state


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


def test_the_button_wants_post_and_a_token() -> None:
    strict = Client(enforce_csrf_checks=True)
    assert strict.get(reverse("audit:create")).status_code == 405
    assert strict.post(reverse("audit:create")).status_code == 403
    assert not Audit.objects.exists()


@pytest.mark.parametrize("name", ["audit:detail", "audit:live"])
def test_no_such_audit(client: Client, name: str) -> None:
    assert client.get(reverse(name, args=[404])).status_code == 404


def test_who_waits_in_vain_is_told_to_start_a_worker(
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


def test_the_chart_is_well_formed_and_can_be_read_aloud(client: Client) -> None:
    audit = Audit.objects.create(report=REPORT)
    page = live(client, audit)
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    spaces = {"svg": "http://www.w3.org/2000/svg"}
    labelled = svg.attrib["aria-labelledby"].split()
    assert labelled == [element.attrib["id"] for element in svg if "id" in element.attrib]
    assert svg.findtext("svg:desc", namespaces=spaces) == "big & wide 1.0: 4.0 KB; small 2: 1.0 KB"
    widths = [bar.attrib["width"] for bar in svg.findall(".//svg:rect[@class='bar']", spaces)]
    assert widths == ["100.0%", "25.0%"]


def test_numbers_in_the_chart_stay_numbers_in_other_languages(
    client: Client, settings: SimpleNamespace
) -> None:
    settings.LANGUAGE_CODE = "de"
    assert 'width="25.0%"' in live(client, Audit.objects.create(report=REPORT))
