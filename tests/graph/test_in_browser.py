"""The graph in a real browser: it changes while one looks, keeps its zoom, and is used by keyboard."""

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from django_ayework import enqueue
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.admin.kit import address
from tests.browser import complaints, resize
from tests.desk.test_every_page import overflow
from tests.gates.works import BROKEN, flow
from tests.processes import eventually

pytestmark = [pytest.mark.browser, pytest.mark.vendors("sqlite"), pytest.mark.django_db(transaction=True)]
FOCUS_GRAPH = "document.getElementById('ayework-graph-view').focus()"


@pytest.fixture
def workflow():
    """Queue a workflow and run its first work; return its id."""
    id = enqueue(flow(links=[["a", "b"], ["c"], ["d"]])).id
    drain(1)
    return id


@pytest.fixture
def find(browser):
    return lambda selector: browser.find_element("css selector", selector)


@pytest.fixture
def visit(browser, live_server, workflow):
    """Open the page of the workflow."""

    def visit(width=1400, **query):
        resize(browser, width)
        browser.get(live_server.url + address("group_change", workflow, **query))

    return visit


@pytest.fixture
def view_box(find):
    """The part of the graph that is seen."""
    return lambda: [float(number) for number in find("svg[data-graph]").get_dom_attribute("viewBox").split()]


@pytest.fixture
def labels(browser):
    """The names of the nodes, in order."""
    script = "return [...document.querySelectorAll('svg[data-graph] [aria-label]')].map(e => e.ariaLabel)"
    return lambda: list(browser.execute_script(script))


def press(browser, *keys):
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def test_the_graph_changes_while_one_looks_and_keeps_its_zoom_and_the_focus(
    browser, quick_refreshes, visit, find, view_box, labels
):
    BROKEN.add("b")
    visit()
    assert "gates.step × 2: 2 pending" in labels()
    whole = view_box()
    find("#ayework-zoom-in").click()
    zoomed = view_box()
    assert zoomed[2] < whole[2]
    drain(raises=False)
    eventually(lambda: "gates.step × 2: 1 dead, 1 success" in labels())
    assert view_box() == zoomed
    assert browser.switch_to.active_element.get_attribute("id") == "ayework-zoom-in"
    assert "gave up: b is broken" in find(".ayework-held li").text
    announced = "have ended, 3 of them dead"
    eventually(lambda: announced in find(".ayework-announcer").get_attribute("textContent"))
    assert complaints(browser) == []


def test_a_link_keeps_the_focus_while_the_page_refreshes(browser, quick_refreshes, workflow, visit, labels):
    visit()
    here = f"a[href='{address('work_change', workflow)}']"
    browser.execute_script(f'[...document.querySelectorAll("{here}")].at(-1).focus()')
    place = f'return [...document.querySelectorAll("{here}")].indexOf(document.activeElement)'
    before = browser.execute_script(place)
    assert before > 0
    drain()
    eventually(lambda: "gates.step × 2: 2 success" in labels())
    assert browser.execute_script(place) == before


def test_keys_move_and_zoom_the_graph_and_the_pointer_drags_it_and_opens_nothing(
    browser, visit, find, view_box
):
    visit()
    start = view_box()
    browser.execute_script(FOCUS_GRAPH)
    press(browser, Keys.ARROW_RIGHT)
    moved = view_box()
    assert moved[0] > start[0]
    assert moved[2:] == start[2:]
    press(browser, Keys.ARROW_LEFT, "+", "+")
    assert view_box()[2] < start[2]
    press(browser, "-", "0")
    assert view_box() == start
    at, node = browser.current_url, find("svg[data-graph] a")
    drag = ActionChains(browser).click_and_hold(node).move_by_offset(-60, 0).move_by_offset(-60, 0)
    drag.release().perform()
    assert view_box()[0] > start[0]
    assert browser.current_url == at
    find("#ayework-zoom-fit").click()
    assert view_box()[0] == 0
    find("svg[data-graph] a").click()
    assert find(".ayework-headline").text.startswith("gates.flow")


def test_the_keyboard_reaches_nodes_and_unfolds_them(browser, live_server, visit, find):
    def focused(tabs):
        browser.execute_script(FOCUS_GRAPH)
        press(browser, *[Keys.TAB] * tabs)
        return browser.switch_to.active_element.get_attribute("aria-label")

    BROKEN.add("b")
    visit()
    drain(raises=False)
    assert focused(2).startswith("gates.step × 2")
    press(browser, Keys.ENTER)
    find(".ayework-cell")
    assert "unfold=" in browser.current_url
    assert focused(3).endswith(": dead, aborted")
    press(browser, Keys.ENTER)
    assert find(".ayework-headline").text.startswith("gates.step dead")
    dead = Work.objects.get(status="dead", type="gates.step")
    assert browser.current_url == live_server.url + address("work_change", dead.id)


def test_a_phone_shows_the_graph_within_its_width(browser, workflow, visit):
    visit(420, unfold=Work.objects.filter(parent_id=workflow)[0].id)
    assert overflow(browser) <= 0
