"""The graph in a real browser: it changes while one looks, keeps its zoom, and is used by keyboard."""

from __future__ import annotations

from typing import Any

import pytest

from django_ayework import enqueue
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.admin.kit import address
from tests.browser import complaints, resize
from tests.gates.works import BROKEN, flow

pytestmark = [pytest.mark.browser, pytest.mark.vendors("sqlite"), pytest.mark.django_db(transaction=True)]


def workflow() -> str:
    """Queue a workflow and run its first work; return its id."""
    id = enqueue(flow(links=[["a", "b"], ["c"], ["d"]])).id
    drain(1)
    return id


def open_group(browser: Any, live_server: Any, id: str, **query: str) -> None:
    resize(browser, 1400)
    browser.get(live_server.url + address("group_change", id, **query))


def view_box(browser: Any) -> list[float]:
    """Return the part of the graph that is seen."""
    text = browser.find_element("css selector", "svg[data-graph]").get_dom_attribute("viewBox")
    return [float(number) for number in text.split()]


def labels(browser: Any) -> list[str]:
    """Return the names of the nodes, in order."""
    script = "return [...document.querySelectorAll('svg[data-graph] [aria-label]')].map(e => e.ariaLabel)"
    return list(browser.execute_script(script))


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def focused(browser: Any) -> Any:
    return browser.switch_to.active_element


def test_the_graph_changes_while_one_looks_and_keeps_its_zoom(browser: Any, live_server: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    BROKEN.add("b")
    open_group(browser, live_server, workflow())
    assert "gates.step × 2: 2 pending" in labels(browser)
    whole = view_box(browser)[2]
    browser.find_element("id", "ayework-zoom-in").click()
    zoomed = view_box(browser)
    assert zoomed[2] < whole

    drain(raises=False)

    shown = WebDriverWait(browser, 20)
    shown.until(lambda browser: "gates.step × 2: 1 dead, 1 success" in labels(browser))
    assert view_box(browser) == zoomed
    assert focused(browser).get_attribute("id") == "ayework-zoom-in"
    held = browser.find_element("css selector", ".ayework-held li").text
    assert "gave up: b is broken" in held
    shown.until(
        lambda browser: (
            "have ended, 3 of them dead"
            in browser.find_element("css selector", ".ayework-announcer").get_attribute("textContent")
        )
    )
    assert complaints(browser) == []


def test_a_link_keeps_the_focus_while_the_page_refreshes(browser: Any, live_server: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    id = workflow()
    open_group(browser, live_server, id)
    here = f"a[href='{address('work_change', id)}']"
    browser.execute_script(f'[...document.querySelectorAll("{here}")].at(-1).focus()')
    place = f'return [...document.querySelectorAll("{here}")].indexOf(document.activeElement)'
    before = browser.execute_script(place)
    assert before > 0
    drain()
    WebDriverWait(browser, 20).until(lambda browser: "gates.step × 2: 2 success" in labels(browser))
    assert browser.execute_script(place) == before


def test_the_dead_work_is_two_clicks_away_from_the_list(browser: Any, live_server: Any) -> None:
    BROKEN.add("b")
    workflow()
    drain(raises=False)
    resize(browser, 1400)
    browser.get(live_server.url + address("group_changelist"))
    browser.find_element("css selector", "#result_list th a").click()
    dead = Work.objects.get(status="dead", type="gates.step")
    first = browser.find_element("css selector", ".ayework-held li")
    assert dead.id in first.text
    assert "gave up: b is broken" in first.text
    first.find_element("css selector", "a").click()
    assert browser.current_url == live_server.url + address("work_change", dead.id)


def test_keys_move_and_zoom_the_graph(browser: Any, live_server: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    open_group(browser, live_server, workflow())
    start = view_box(browser)
    browser.execute_script("document.getElementById('ayework-graph-view').focus()")
    press(browser, Keys.ARROW_RIGHT)
    moved = view_box(browser)
    assert moved[0] > start[0]
    assert moved[2:] == start[2:]
    press(browser, Keys.ARROW_LEFT, "+", "+")
    assert view_box(browser)[2] < start[2]
    press(browser, "-", "0")
    assert view_box(browser) == start


def test_the_keyboard_reaches_nodes_and_unfolds_them(browser: Any, live_server: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    BROKEN.add("b")
    open_group(browser, live_server, workflow())
    drain(raises=False)
    browser.execute_script("document.getElementById('ayework-graph-view').focus()")
    press(browser, Keys.TAB, Keys.TAB)
    assert focused(browser).get_attribute("aria-label").startswith("gates.step × 2")
    press(browser, Keys.ENTER)
    browser.find_element("css selector", ".ayework-cell")
    assert "unfold=" in browser.current_url
    browser.execute_script("document.getElementById('ayework-graph-view').focus()")
    press(browser, Keys.TAB, Keys.TAB, Keys.TAB)
    assert focused(browser).get_attribute("aria-label").endswith(": dead, aborted")
    dead = Work.objects.get(status="dead", type="gates.step")
    press(browser, Keys.ENTER)
    assert browser.find_element("class name", "ayework-headline").text.startswith("gates.step dead")
    assert browser.current_url == live_server.url + address("work_change", dead.id)


def test_the_pointer_drags_the_graph_and_opens_nothing(browser: Any, live_server: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    open_group(browser, live_server, workflow())
    at = browser.current_url
    start = view_box(browser)
    node = browser.find_element("css selector", "svg[data-graph] a")
    ActionChains(browser).click_and_hold(node).move_by_offset(-60, 0).move_by_offset(
        -60, 0
    ).release().perform()
    assert view_box(browser)[0] > start[0]
    assert browser.current_url == at
    browser.find_element("id", "ayework-zoom-fit").click()
    assert view_box(browser)[0] == 0
    node = browser.find_element("css selector", "svg[data-graph] a")
    node.click()
    assert browser.find_element("class name", "ayework-headline").text.startswith("gates.flow")


def test_a_phone_shows_the_graph_within_its_width(browser: Any, live_server: Any) -> None:
    id = workflow()
    resize(browser, 420)
    browser.get(live_server.url + address("group_change", id, unfold=Work.objects.filter(parent_id=id)[0].id))
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(wide) <= 0
