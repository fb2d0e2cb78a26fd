"""The overview in a real browser: two incidents end to end, and what a keyboard and a phone need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_ayework.models import Work, WorkControl
from django_ayework.store import throughput
from django_ayework.store.throughput import Bucket, Ended, span_start
from django_ayework.testing import now
from django_ayework.testing.factories import (
    DeadLetterFactory,
    WorkControlFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.admin.kit import address
from tests.app.works import add
from tests.browser import complaints, resize
from tests.desk.test_every_page import OF_COLOURS, darken, overflow, violations
from tests.processes import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def nothing_to_complain_of(browser: Any) -> Iterator[None]:
    yield
    assert complaints(browser) == []


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def text(browser: Any, selector: str) -> str:
    """What an element says now; a refresh may replace it at any moment."""
    script = "return document.querySelector(arguments[0]).textContent"
    return " ".join(str(browser.execute_script(script, selector)).split())


def test_nothing_is_processed_and_the_page_says_why_while_one_looks(browser: Any, live_server: Any) -> None:
    worker = WorkerProcessFactory(queues="mail")
    browser.get(live_server.url + address("overview_changelist"))
    assert text(browser, ".ayework-headline-box h2").startswith("✓ All is well")
    WorkFactory.create_batch(3, queue="exports")
    eventually(lambda: "exports: 3 works wait" in text(browser, ".ayework-overview"))
    assert "ayework_worker --queues exports" in text(browser, ".ayework-remedy")
    announced = text(browser, "[data-live-announce]")
    assert announced == "No worker serves a queue: exports"
    type(worker).objects.filter(id=worker.id).update(queues="")
    eventually(lambda: text(browser, ".ayework-headline-box h2").startswith("✓ All is well"))


def test_a_type_that_floods_is_limited_and_paused_in_its_row(browser: Any, live_server: Any) -> None:
    WorkerProcessFactory(running=1)
    Work.objects.bulk_create(WorkFactory.build_batch(1100, type=add.name))
    browser.get(live_server.url + address("overview_changelist"))
    assert "Too many works of shop.add: 1,100 works wait" in text(browser, ".ayework-headline-box h2")
    find(browser, ".ayework-acts summary").click()
    field = find(browser, ".ayework-acts input[name^=max_running]")
    field.send_keys("2\n")  # Enter alone presses nothing, whatever the first button is
    assert not WorkControl.objects.exists()
    find(browser, ".ayework-acts details button").click()
    eventually(lambda: WorkControl.objects.filter(name=add.name, max_running=2).exists())
    assert "Changed running at most from as declared to 2." in text(browser, ".messagelist")
    find(browser, ".ayework-acts button").click()
    eventually(lambda: WorkControl.objects.filter(name=add.name, paused=True, max_running=2).exists())
    assert "The type shop.add is paused, and 1,100 works wait." in text(browser, ".ayework-headline-box")
    find(browser, ".ayework-headline-box button").click()
    eventually(lambda: WorkControl.objects.filter(name=add.name, paused=False).exists())


def test_what_was_typed_and_not_sent_outlives_a_refresh(browser: Any, live_server: Any) -> None:
    WorkFactory(type=add.name)
    browser.get(live_server.url + address("overview_changelist"))
    find(browser, ".ayework-acts summary").click()
    find(browser, ".ayework-acts input[name^=max_running]").send_keys("3")
    find(browser, ".ayework-acts summary").send_keys("")  # the field loses the focus
    refreshed = "const f=document.querySelector('[data-live]');window.asked=0;const g=window.fetch;"
    browser.execute_script(refreshed + "window.fetch=(...a)=>{window.asked++;return g(...a)}")
    WorkFactory(type="shop.another")
    eventually(lambda: browser.execute_script("return window.asked") >= 2)
    assert find(browser, ".ayework-acts input[name^=max_running]").get_attribute("value") == "3"


def test_all_can_be_done_by_keyboard(browser: Any, live_server: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(key: str) -> None:
        ActionChains(browser).send_keys(key).perform()

    def focused() -> Any:
        return browser.execute_script("return document.activeElement.id")

    WorkerProcessFactory()
    WorkFactory(type=add.name)
    browser.get(live_server.url + address("overview_changelist"))
    pause = find(browser, ".ayework-acts button").get_attribute("id")
    for _ in range(80):
        press(Keys.TAB)
        if focused() == pause:
            break
    assert focused() == pause
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert browser.execute_script(outline) != "none"
    press(Keys.SPACE)
    eventually(lambda: WorkControl.objects.filter(name=add.name, paused=True).exists())


@pytest.mark.parametrize("width", [1280, 1024, 800])
def test_a_window_of_middle_width_shows_the_page_and_wide_tables_scroll_by_themselves(
    browser: Any, live_server: Any, width: int
) -> None:
    WorkerProcessFactory(running=1)
    WorkFactory.create_batch(3, type="shop.reserve")
    throughput.add(
        {Bucket(span_start(now(), 60), "shop.reserve", "q"): Ended(succeeded=5, failed=2, dead=11)}
    )
    resize(browser, width)
    browser.get(live_server.url + address("overview_changelist"))
    assert overflow(browser) == 0
    if width == 1280:
        button, box = (find(browser, place).rect for place in (".ayework-acts summary", ".ayework-scroll"))
        assert button["x"] + button["width"] <= box["x"] + box["width"]


@pytest.mark.parametrize("width", [1400, 420])
def test_the_page_is_accessible_in_both_themes_and_nothing_overflows_it(
    browser: Any, live_server: Any, width: int
) -> None:
    WorkerProcessFactory(name="worker-" + "x" * 50, host="host-" + "y" * 60, running=1)
    WorkFactory.create_batch(3, type="shop." + "long_name" * 12, queue="q" * 60)
    WorkControlFactory(scope="queue", name="q" * 60)
    ended = {Bucket(span_start(now(), 60), "shop.a", "q"): Ended(succeeded=5, failed=2, dead=1)}
    throughput.add(ended)
    DeadLetterFactory.create_batch(6)
    resize(browser, width)
    browser.get(live_server.url + address("overview_changelist"))
    find(browser, ".ayework-acts summary").click()
    assert overflow(browser) == 0
    assert violations(browser) == []
    darken(browser, width)
    assert violations(browser, OF_COLOURS) == []
    complaints(browser)  # axe-core styles what it looks at
