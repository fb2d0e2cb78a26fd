"""The guide, the dashboard and the alert rules name what is exported."""

import json
import re

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from django_ayework import Defer, Retry, cancel, enqueue, signals, work
from django_ayework.contrib.prometheus.page import exporter
from django_ayework.models import Work
from django_ayework.testing import drain
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.app.works import add, fail
from tests.documentation.pages import ROOT, names, table

pytestmark = pytest.mark.vendors("sqlite")

GUIDE = "operations/monitoring.md"
FOLDER = ROOT / "docs" / "monitoring"
#: What belongs to every histogram.
OF_HISTOGRAM = {"_bucket": {"le"}, "_sum": set(), "_count": set()}
#: A series with its matchers, the labels of a grouping, and the labels of matchers, in PromQL.
SELECTOR = re.compile(r"(ayework_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
[GROUP] = yaml.safe_load((FOLDER / "ayework-alerts.yml").read_text())["groups"]
RULES = {rule["alert"]: rule["expr"] for rule in GROUP["rules"]}


def documented():
    """Return the kind and the labels of each series in the guide."""
    rows = table(GUIDE, "Counted by each process") + table(GUIDE, "Read from the database")
    return {names(name)[0]: (kind, set(names(labels))) for name, kind, labels, _ in rows}


def samples():
    """Return the labels of each name that a page may show."""
    found = {}
    for name, (kind, labels) in documented().items():
        parts = OF_HISTOGRAM if kind == "histogram" else {"": set()}
        found.update((name + suffix, labels | more) for suffix, more in parts.items())
    return found


def expressions():
    """Yield the expressions of the rules and of the dashboard, each with what it belongs to."""
    yield from RULES.items()
    board = json.loads((FOLDER / "ayework-dashboard.json").read_text())
    for panel in board["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def grouped_labels(expression):
    return {label.strip() for labels in GROUPED.findall(expression) for label in labels.split(",")}


def shown_series():
    """Return the kind and the sets of labels of each series of the package on a page."""
    return {
        family.name: (family.type, {frozenset(sample.labels) - {"le"} for sample in family.samples})
        for family in text_string_to_metric_families(exporter.page().body.decode())
        if family.name.startswith("ayework_") and not family.name.endswith("_created")
    }


@pytest.mark.django_db
def test_the_guide_lists_what_a_page_shows(counted):
    @work(name="t.metrics.later")
    def later() -> None:
        raise Defer(delay=60)

    first = enqueue(add(a=1, b=2))
    enqueue(add(a=1, b=2), blockers=[first])
    enqueue(fail(), retry=Retry(attempts=1))
    enqueue(later())
    drain(raises=False)
    cancel(enqueue(add(a=1, b=2)).id)
    drain()
    signals.outcome_refused.send_robust(sender="shop.add", work_id="1", cause="moved")
    signals.error_reported.send_robust(sender=None, error=ValueError(), phase="queue")
    DeadLetterFactory()
    for status in ("pending", "scheduled", "running", "blocked"):
        WorkFactory(status=status)
    shown = shown_series()
    Work.objects.filter(status__in=("running", "blocked")).delete()  # nobody holds them
    expected = documented().items()
    assert shown == {name.removesuffix("_total"): (kind, {frozenset(of)}) for name, (kind, of) in expected}


@pytest.mark.parametrize(("of", "expression"), list(expressions()))
def test_an_expression_uses_names_and_labels_that_are_exported(of, expression):
    exported = samples()
    used = SELECTOR.findall(expression)
    assert used
    labels = set()
    for name, matchers in used:
        assert name in exported
        assert set(LABEL.findall(matchers)) <= exported[name]
        labels |= exported[name]
    assert grouped_labels(expression) <= labels


@pytest.mark.django_db
def test_the_alert_for_unknown_types_reads_the_gauge_that_shows_parked_works():
    WorkFactory(type="shop.gone")
    drain()
    page = exporter.page().body.decode()
    [gauge] = re.findall(r'^(ayework_\w+_works)\{[^}]*type="unknown"\} 1\.0$', page, re.MULTILINE)
    assert f'{gauge}{{type="unknown"}}' in RULES["AyeworkUnknownTypes"]


def test_the_dashboard_shows_every_series():
    shown = " ".join(expression for _, expression in expressions())
    assert [name for name in documented() if name not in shown] == []


def test_the_guide_lists_the_alerts_and_texts_use_labels_that_the_alert_has():
    assert "or absent(ayework_live_workers)" in RULES["AyeworkNoWorkers"], "nobody is left to serve the gauge"
    assert [names(name)[0] for name, _ in table(GUIDE, "Alert rules")] == list(RULES)
    for rule in GROUP["rules"]:
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert used <= grouped_labels(rule["expr"])
