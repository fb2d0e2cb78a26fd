"""The overview in a real browser: an incident, and what a keyboard and narrow windows need."""

import pytest

from django_ayework.models import WorkControl
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
HEADLINE = ".ayework-headline-box h2"
LIMIT = ".ayework-acts input[name^=max_running]"


@pytest.fixture(autouse=True)
def nothing_to_complain_of(browser):
    yield
    assert complaints(browser) == []


@pytest.fixture
def visit(browser, live_server):
    return lambda: browser.get(live_server.url + address("overview_changelist"))


@pytest.fixture
def find(browser):
    return lambda selector: browser.find_element("css selector", selector)


@pytest.fixture
def text(browser):
    """What an element says now; a refresh may replace it at any moment."""
    script = "return document.querySelector(arguments[0]).textContent"
    return lambda selector: " ".join(str(browser.execute_script(script, selector)).split())


#: Lets the page ask the server at once, as after it was hidden; calls back when it shows the answer.
REFRESH = """
const done = arguments[0], fetched = window.fetch;
window.fetch = async (...asked) => {
  window.fetch = fetched;
  const answer = await fetched(...asked), text = await answer.text();
  return { ok: answer.ok, headers: answer.headers, text: async () => (setTimeout(done), text) };
};
document.dispatchEvent(new Event("visibilitychange"));
"""


def test_nothing_is_processed_and_the_page_says_why_while_one_looks(browser, quick_refreshes, visit, text):
    worker = WorkerProcessFactory(queues="mail")
    visit()
    assert text(HEADLINE).startswith("✓ All is well")
    WorkFactory.create_batch(3, queue="exports")
    eventually(lambda: "exports: 3 works wait" in text(".ayework-overview"))
    assert "ayework_worker --queues exports" in text(".ayework-remedy")
    assert text("[data-live-announce]") == "No worker serves a queue: exports"
    type(worker).objects.filter(id=worker.id).update(queues="")
    browser.execute_async_script(REFRESH)
    assert text(HEADLINE).startswith("✓ All is well")


def test_a_page_that_is_not_refreshed_any_more_says_so_until_it_is(browser, visit, find, settings):
    def refresh():
        browser.execute_script('document.dispatchEvent(new Event("visibilitychange"))')

    WorkerProcessFactory()
    visit()
    note = find("[data-live-failed]")
    assert not note.is_displayed()
    session = browser.get_cookie(settings.SESSION_COOKIE_NAME)
    browser.delete_cookie(session["name"])
    refresh()
    eventually(note.is_displayed)
    assert note.text == (
        "This page is not up to date. The server did not answer, or you are signed out. Reload"
    )
    assert violations(browser) == []
    browser.add_cookie(session)
    refresh()
    eventually(lambda: not note.is_displayed())
    complaints(browser)  # of the answer that failed


def test_what_was_typed_and_not_sent_outlives_a_refresh(browser, visit, find):
    WorkFactory(type=add.name)
    visit()
    find(".ayework-acts summary").click()
    find(LIMIT).send_keys("3")
    find(".ayework-acts summary").send_keys("")  # the field loses the focus
    WorkFactory(type="shop.another")
    browser.execute_async_script(REFRESH)
    assert find(LIMIT).get_attribute("value") == "3"


def test_all_can_be_done_by_keyboard(browser, visit, find):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def focused():
        return browser.execute_script("return document.activeElement.id")

    WorkerProcessFactory()
    WorkFactory(type=add.name)
    visit()
    pause, presses = find(".ayework-acts button").get_attribute("id"), 0
    while focused() != pause and presses < 80:
        ActionChains(browser).send_keys(Keys.TAB).perform()
        presses += 1
    assert focused() == pause
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert browser.execute_script(outline) != "none"
    ActionChains(browser).send_keys(Keys.SPACE).perform()
    eventually(lambda: WorkControl.objects.filter(name=add.name, paused=True).exists())


@pytest.mark.parametrize("language", ["en", "de", "es", "fr"])
def test_a_window_of_middle_width_shows_the_page_and_all_buttons(browser, visit, find, settings, language):
    settings.LANGUAGE_CODE = language
    WorkerProcessFactory(running=1)
    WorkControlFactory(scope="type", name="shop.reserve", paused=True, max_running=3)
    WorkFactory.create_batch(3, type="shop.reserve")
    throughput.add(
        {Bucket(span_start(now(), 60), "shop.reserve", "q"): Ended(succeeded=5, failed=2, dead=11)}
    )
    for width in (800, 1024, 1280):
        resize(browser, width)
        visit()
        assert overflow(browser) == 0, width
        button, box = (find(place).rect for place in (".ayework-acts summary", ".ayework-scroll"))
        assert button["x"] + button["width"] <= box["x"] + box["width"], width


def test_the_page_is_accessible_in_both_themes_and_nothing_overflows_it(browser, visit, find):
    WorkerProcessFactory(name="worker-" + "x" * 50, host="host-" + "y" * 60, running=1)
    WorkFactory.create_batch(3, type="shop." + "long_name" * 12, queue="q" * 60)
    WorkControlFactory(scope="queue", name="q" * 60)
    throughput.add({Bucket(span_start(now(), 60), "shop.a", "q"): Ended(succeeded=5, failed=2, dead=1)})
    DeadLetterFactory.create_batch(6)
    for width in (1400, 420):
        resize(browser, width)
        visit()
        find(".ayework-acts summary").click()
        assert overflow(browser) == 0, width
    assert violations(browser) == []
    darken(browser, width)
    assert violations(browser, OF_COLOURS) == []
    complaints(browser)  # axe-core styles what it looks at
