"""Incidents from the first click to the end, with a worker that runs.

Other incidents are in ``tests/overview/test_browser.py`` (a queue that no worker serves),
``tests/admin/test_browser.py`` (a bad argument) and ``tests/bulk/test_browser.py`` (1 200 works that died the
same way).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from django_ayework import Context, Retry, enqueue, enqueue_many, work
from django_ayework.models import Work, WorkControl
from django_ayework.testing import drain, running_worker
from tests.browser import complaints, resize
from tests.processes import eventually

pytestmark = [pytest.mark.browser, pytest.mark.vendors("sqlite"), pytest.mark.django_db(transaction=True)]


@dataclass
class Desk:
    """The admin in a browser; it counts what the operator clicks."""

    browser: Any
    url: str
    clicks: int = field(default=0)

    def open(self) -> None:
        """Open the admin's first page of the app."""
        resize(self.browser, 1400)
        self.browser.get(f"{self.url}/admin/django_ayework/")

    def text(self, selector: str = "main, #main") -> str:
        """Return what is shown now, in one look, as fragments are replaced meanwhile."""
        script = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.browser.execute_script(script, selector))

    def click(self, text: str) -> None:
        """Press the first link or button with this text."""
        self.clicks += 1
        script = """
            const word = each => (each.textContent.trim() || each.value || '').replace(/\\s+/g, ' ');
            const shown = [...document.querySelectorAll('a, button, summary, input[type=submit]')];
            const found = shown.find(each => word(each).startsWith(arguments[0]));
            found?.scrollIntoView({block: 'center'});
            found?.click();
            return Boolean(found);
        """
        assert self.browser.execute_script(script, text), f"no {text!r} on the page: {self.text()}"

    def shows(self, text: str, selector: str = "main, #main") -> None:
        """Wait until the page shows this."""
        eventually(lambda: text in self.text(selector))


@pytest.fixture
def desk(browser: Any, live_server: Any) -> Iterator[Desk]:
    yield Desk(browser, live_server.url)
    assert complaints(browser) == []


def test_a_report_never_came_and_the_member_that_holds_it_up_is_named_first(desk: Desk) -> None:
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


def test_a_type_floods_and_is_limited_and_paused_where_it_is_seen(desk: Desk) -> None:
    running, most, lock, over = [0], [0], threading.Lock(), threading.Event()

    @work(name="incident.flood")
    def flood(number: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        over.wait(0.05)
        with lock:
            running[0] -= 1

    enqueue_many([flood(number=number) for number in range(1500)])
    with running_worker(concurrency=4):
        eventually(lambda: running[0] == 4)
        desk.open()
        desk.click("Overview")
        desk.shows("incident.flood", ".ayework-headline-box, .ayework-others")
        desk.click("Pause incident.flood")
        eventually(lambda: WorkControl.objects.filter(name="incident.flood", paused=True).exists())
        eventually(lambda: not Work.objects.filter(type="incident.flood", status="running").exists())
        assert desk.clicks == 2
        waiting = Work.objects.filter(type="incident.flood", status="pending").count()
        assert waiting > 0

        most[0] = 0
        desk.click("Limit")
        desk.browser.find_element("css selector", "input[name^=max_running]").send_keys("1")
        desk.click("Set")
        eventually(lambda: WorkControl.objects.filter(name="incident.flood", max_running=1).exists())
        desk.click("Resume incident.flood")
        eventually(lambda: Work.objects.filter(type="incident.flood", status="pending").count() < waiting - 5)
        assert most[0] == 1
        over.set()
