"""Pages in a language that is written from right to left: drawings, their labels, and stored values."""

import json

import pytest

from django_ayework import enqueue
from django_ayework.store.throughput import Bucket, Ended, add, span_start
from django_ayework.testing import drain, now
from django_ayework.testing.factories import DeadLetterFactory
from tests.admin.kit import address
from tests.desk.population import fetches

pytestmark = [pytest.mark.browser, pytest.mark.vendors("sqlite"), pytest.mark.django_db(transaction=True)]

#: Whether the text of every node of the graph lies within the outline of that node.
TEXTS_IN_NODES = """
const nodes = [...document.querySelectorAll(".ayework-graph .ayework-node")];
return nodes.length > 1 && nodes.every((node) => {
  const [box, text] = [".ayework-outline", ".ayework-first"]
    .map((each) => node.querySelector(each).getBoundingClientRect());
  return text.left >= box.left && text.right <= box.right;
});
"""
#: Whether the first of some labels is left of the last.
FROM_LEFT = """
const [first, ...others] = document.querySelectorAll(arguments[0]);
return first.getBoundingClientRect().left < others.at(-1).getBoundingClientRect().left;
"""
DIRECTION = "return getComputedStyle(document.querySelector(arguments[0])).direction"


@pytest.fixture
def visit(browser, live_server, settings):
    """Open a page in Arabic."""
    settings.LANGUAGE_CODE = "ar"

    def visit(page, *args):
        browser.get(live_server.url + address(page, *args))
        assert browser.execute_script(DIRECTION, "html") == "rtl"

    return visit


def test_drawings_have_their_labels_where_they_are_drawn(browser, visit):
    add({Bucket(span_start(now(), 60), "desk.report", "default"): Ended(succeeded=5)})
    first = enqueue(fetches(pages=3, text="two words"))
    drain(raises=False)
    visit("overview_changelist")
    assert browser.execute_script(FROM_LEFT, ".ayework-chart:first-child .ayework-axis span")
    visit("work_change", first.id)
    assert browser.execute_script(FROM_LEFT, ".ayework-ends span")
    visit("group_change", first.id)
    assert browser.execute_script(TEXTS_IN_NODES)


def test_stored_values_are_laid_out_as_they_are_written(browser, visit):
    work = DeadLetterFactory(type="desk.report", input=json.dumps({"title": "two words"}))
    visit("work_change", work.id)
    assert browser.execute_script(DIRECTION, ".ayework-text") == "ltr"
    visit("work_edit", work.id)
    assert browser.execute_script(DIRECTION, "[name=input-title]") == "ltr"
