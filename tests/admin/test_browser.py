"""The admin in a real browser."""

from itertools import combinations

import pytest

from django_ayework import Retry, Worker, dependency, enqueue, work
from django_ayework.models import Work
from django_ayework.testing import drain
from django_ayework.testing.factories import ScheduleFactory
from tests.admin.kit import address, die
from tests.app.works import add
from tests.browser import complaints
from tests.processes import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def find(browser):
    return lambda selector: browser.find_element("css selector", selector)


@pytest.fixture
def visit(browser, live_server):
    return lambda page, *args, **query: browser.get(live_server.url + address(page, *args, **query))


def test_a_phone_shows_what_failed_and_how_it_stands(browser, visit, find):
    die("expected the address to have a street, a number, a town and a country, got nothing of the kind")
    screen = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    for page in ("work_changelist", "deadletter_list"):
        visit(page)
        for seen in ("#result_list .ayework-error", "#result_list td:nth-of-type(3)"):
            place = find(seen).rect
            assert place["x"] + place["width"] <= 390, page
        assert find("#result_list tbody tr").rect["height"] < 200, page


def test_an_operator_retries_a_dead_letter(browser, visit, find):
    dead, other = die("no luck"), die("other")
    visit("deadletter_list")
    assert "RuntimeError: no luck" in find("#result_list").text
    find(f"input[name=_selected_action][value='{dead.id}']").click()
    find("select[name=action] option[value=retry_selected]").click()
    find("#changelist-form button[name=index]").click()
    assert "1 work was retried." in find(".messagelist").text
    left = find("#result_list").text
    assert "RuntimeError: other" in left
    assert "no luck" not in left
    dead.refresh_from_db()
    assert dead.status == "pending"

    find("#result_list th.field-short_id a").click()
    assert find(".ayework-headline").text == "shop.fail dead exhausted"
    details = find(".ayework-scroll details")
    assert "Traceback" not in details.text
    details.find_element("css selector", "summary").click()
    assert "Traceback" in details.text
    find(".ayework-retry button").click()
    assert "1 work was retried." in find(".messagelist").text
    other.refresh_from_db()
    assert other.status == "pending"
    assert not complaints(browser)


@work(name="edit.ship", retry=Retry(attempts=1))
def ship(order: int, note: str = "") -> str:
    if order < 0:
        raise ValueError(f"no order {order}")
    return f"order {order}"


def test_an_operator_corrects_a_bad_argument_and_the_workflow_goes_on(browser, visit, find):
    def fill(before, text):
        field = find("[name=input-order]")
        assert field.get_attribute("value") == before
        field.clear()
        field.send_keys(text)
        find(".submit-row [type=submit]").click()

    bad, last = ship(order=-7), add(a=40, b=2)
    with Worker(concurrency=2):
        enqueue(dependency(on=[bad], queue=[last]))
        handle = enqueue(bad)
        eventually(lambda: Work.objects.filter(id=handle.id, status="dead").exists())
        visit("work_change", handle.id)
        edit = "//*[self::a or self::button][normalize-space()='Edit and retry']"
        browser.find_element("xpath", edit).click()
        fill("-7", "seven")
        assert "expected a whole number, got: 'seven'" in find(".errorlist").text
        fill("seven", "7")
        assert find(".ayework-difference tbody tr").text == "order -7 7"
        assert Work.objects.get(id=handle.id).status == "dead"
        find(".submit-row [type=submit]").click()
        assert "retried with the new input" in find(".messagelist").text
        eventually(lambda: Work.objects.filter(id=last.id, status="success").exists())
    assert handle.result() == "order 7"
    browser.refresh()
    assert "Former inputs" in find("#content").text
    assert not complaints(browser)


#: Sends the form of a button twice and stops both; returns which of them a script of the page had stopped.
SEND_TWICE = """
const stopped = [];
addEventListener("submit", (event) => { stopped.push(event.defaultPrevented); event.preventDefault(); });
for (const _ of "12") arguments[0].form.requestSubmit(arguments[0]);
return stopped;
"""


def test_a_second_press_of_a_button_does_not_act_twice(browser, live_server, find):
    done = enqueue(add(a=1, b=2))
    drain()
    pages = {
        address("work_change", done.id): ".ayework-run_again button",
        address("work_edit", done.id): ".submit-row [type=submit]",
        address("work_changelist"): "#changelist-form button[name=index]",
        address("bulkaction_new", action="run_again", status="success"): ".submit-row [type=submit]",
        address("schedule_change", str(ScheduleFactory().pk)): "form[action$='/run/'] button",
    }
    for page, button in pages.items():
        browser.get(live_server.url + page)
        assert browser.execute_script(SEND_TWICE, find(button)) == [False, True], page


def test_buttons_cover_neither_the_heading_nor_one_another(browser, visit, settings):
    texts = [".object-tools button, .object-tools a", "#content > h1", ".ayework-headline"]
    script = "return [...document.querySelectorAll(arguments[0])].map(each => each.getBoundingClientRect())"
    later, dead = enqueue(add(a=1, b=2), delay=3600).id, die().id
    for settings.LANGUAGE_CODE in ("en", "de", "es", "fr"):
        for page, id in (("work_change", later), ("deadletter_change", dead)):
            visit(page, id)
            boxes = browser.execute_script(script, ", ".join(texts))
            assert len(boxes) > 4
            assert not any(map(overlap, *zip(*combinations(boxes, 2), strict=True))), settings.LANGUAGE_CODE


def overlap(one, other):
    """Tell whether two boxes of a page have a point in common."""
    beside = one["right"] <= other["left"] or other["right"] <= one["left"]
    return not beside and one["top"] < other["bottom"] and other["top"] < one["bottom"]
