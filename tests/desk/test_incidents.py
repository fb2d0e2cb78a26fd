"""Incidents from the first click to the end, with a worker that runs.

Other incidents are in ``tests/overview/test_browser.py`` (a queue that no worker serves),
``tests/admin/test_browser.py`` (a bad argument) and ``tests/bulk/test_browser.py`` (1 200 works that died the
same way).
"""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from django_ayework import Context, Retry, enqueue, enqueue_many, work
from django_ayework.models import Work, WorkControl
from django_ayework.testing import drain, running_worker
from tests.admin.kit import address
from tests.browser import complaints, resize
from tests.processes import eventually

pytestmark = [pytest.mark.browser, pytest.mark.vendors("sqlite"), pytest.mark.django_db(transaction=True)]
CLICK = """
    const word = each => (each.textContent.trim() || each.value || '').replace(/\\s+/g, ' ');
    const shown = [...document.querySelectorAll('a, button, summary, input[type=submit]')];
    const found = shown.find(each => word(each).startsWith(arguments[0]));
    found?.scrollIntoView({block: 'center'});
    found?.click();
    return Boolean(found);
"""


@dataclass
class Desk:
    """The admin in a browser; it counts what the operator clicks."""

    browser: Any
    url: str
    clicks: int = field(default=0)

    def open(self):
        """Open the admin's first page of the app."""
        resize(self.browser, 1400)
        self.browser.get(f"{self.url}/admin/django_ayework/")

    def text(self, selector="main, #main"):
        """Return what is shown now, in one look, as fragments are replaced meanwhile."""
        script = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.browser.execute_script(script, selector))

    def click(self, text):
        """Press the first link or button with this text."""
        self.clicks += 1
        assert self.browser.execute_script(CLICK, text), f"no {text!r} on the page: {self.text()}"

    def shows(self, text, selector="main, #main"):
        """Wait until the page shows this."""
        eventually(lambda: text in self.text(selector))


@pytest.fixture
def desk(browser, live_server):
    yield Desk(browser, live_server.url)
    assert complaints(browser) == []


def test_a_report_never_came_and_the_member_that_holds_it_up_is_named_first(desk):
    @work(name="incident.fetch", retry=Retry(attempts=1))
    def fetch(page: int) -> int:
        if page == 77:
            raise ConnectionError("page 77 is gone")
        return page

    @work(name="incident.report")
    def report() -> str:
        return "the report"

    @work(name="incident.audit")
    def audit(ctx: Context) -> Any:
        return ctx.queue([fetch(page=page) for page in range(100)]).next([report()])

    enqueue(audit())
    drain(raises=False)
    with running_worker():
        desk.open()
        desk.click("Groups")
        desk.click("…")  # the only group of the list
        desk.shows("What holds it up")
        first = desk.text(".ayework-held, .ayework-section")
        assert "incident.fetch" in first
        assert "page 77 is gone" in first
        assert desk.clicks == 2
        held = desk.browser.find_element("css selector", ".ayework-held li")
        dead = Work.objects.get(status="dead", type="incident.fetch")
        assert dead.id in held.text
        held.find_element("css selector", "a").click()
        assert desk.browser.current_url == desk.url + address("work_change", dead.id)


def test_a_type_floods_and_is_limited_and_paused_where_it_is_seen(desk):
    running, most, lock, over = [0], [0], threading.Lock(), threading.Event()

    @work(name="incident.flood")
    def flood(number: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        over.wait(0.05)
        with lock:
            running[0] -= 1

    works = Work.objects.filter(type="incident.flood")
    controls = WorkControl.objects.filter(name="incident.flood")
    enqueue_many([flood(number=number) for number in range(1500)])
    with running_worker(concurrency=4):
        eventually(lambda: running[0] == 4)
        desk.open()
        desk.click("Overview")
        desk.shows("incident.flood", ".ayework-headline-box, .ayework-others")
        desk.click("Pause incident.flood")
        eventually(controls.filter(paused=True).exists)
        eventually(lambda: not works.filter(status="running").exists())
        assert desk.clicks == 2
        waiting = works.filter(status="pending").count()
        assert waiting > 0
        paused = f"The type incident.flood is paused, and {waiting:,} works wait."
        desk.shows(paused, ".ayework-headline-box")

        most[0] = 0
        desk.click("Limit")
        limit = desk.browser.find_element("css selector", "input[name^=max_running]")
        limit.send_keys("1\n")  # Enter alone presses nothing, whatever the first button is
        assert controls.get().max_running is None
        desk.click("Set")
        eventually(controls.filter(max_running=1, paused=True).exists)
        desk.shows("Changed running at most from as declared to 1.", ".messagelist")
        desk.click("Resume incident.flood")
        eventually(lambda: works.filter(status="pending").count() < waiting - 5)
        assert most[0] == 1
        over.set()
