"""The guide that chooses between gate, blocker, chain, ``then``, schedule and interval: its examples run."""

from __future__ import annotations

import re

import pytest

from django_ayework.models import Work
from django_ayework.testing import drain, running_worker
from tests.docs import anchors
from tests.documentation.pages import names, page, python_blocks, tables
from tests.fixtures import quick_polls  # noqa: F401
from tests.processes import eventually

PAGE = page("guides/choosing.md")
#: Each example, with the heading it stands under.
HEADINGS = re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
EXAMPLES = dict(zip(HEADINGS, python_blocks(PAGE), strict=True))


def run(heading: str) -> None:
    line, source = EXAMPLES[heading]
    exec(compile("\n" * (line - 1) + source, str(PAGE), "exec"), {"__name__": "example"})


def test_the_first_table_leads_to_each_section():
    targets = [re.findall(r"\(#(\w+)\)", row[1]) for row in tables(PAGE.read_text())[0]]
    assert targets == [[heading.strip("`").lower()] for heading in HEADINGS]
    assert {target for [target] in targets} <= anchors(PAGE)


@pytest.mark.django_db
@pytest.mark.parametrize("heading", HEADINGS)
def test_the_example_runs(heading):
    run(heading)
    drain()
    assert set(Work.objects.values_list("status", flat=True)) <= {"success"}


@pytest.mark.django_db
def test_only_an_interval_queues_nothing_in_a_test():
    counts = {}
    for heading in HEADINGS:
        before = Work.objects.count()
        run(heading)
        counts[heading] = Work.objects.count() - before
    assert [heading for heading, count in counts.items() if not count] == ["Interval"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick_polls")
def test_workers_queue_the_first_work_of_an_interval():
    run("Interval")
    with running_worker(concurrency=1):
        eventually(lambda: Work.objects.filter(type="shop.sync_stock", status="success").exists())


def test_what_the_first_table_shows_is_what_the_examples_use():
    for heading, row in zip(HEADINGS, tables(PAGE.read_text())[0], strict=True):
        [shown] = names(row[2])
        words = set(re.findall(r"\w{4,}", shown))
        assert words & set(re.findall(r"\w{4,}", EXAMPLES[heading][1])), heading
