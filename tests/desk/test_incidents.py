"""An incident from the first click to the end, with a worker that runs.

Other incidents are in ``tests/overview/test_browser.py`` (a queue that no worker serves, a type that floods),
``tests/admin/test_browser.py`` (a bad argument) and ``tests/bulk/test_browser.py`` (200 works that died the
same way).
"""

from __future__ import annotations

from typing import Any

import pytest

from django_ayework import Context, Retry, enqueue, work
from django_ayework.testing import drain, running_worker
from tests.browser import complaints, resize
from tests.processes import eventually

pytestmark = [pytest.mark.browser, pytest.mark.vendors("sqlite"), pytest.mark.django_db(transaction=True)]


def shown(browser: Any, selector: str) -> str:
    """Return what is shown now, in one look, as fragments are replaced meanwhile."""
    script = "return document.querySelector(arguments[0])?.innerText ?? ''"
    return str(browser.execute_script(script, selector))


def test_a_report_never_came_and_two_clicks_name_the_member_that_holds_it_up_first(
    browser: Any, live_server: Any
) -> None:
    @work(name="incident.fetch", retry=Retry(attempts=1))
    def fetch(page: int) -> int:
        if page == 17:
            raise ConnectionError("page 17 is gone")
        return page

    @work(name="incident.report")
    def report() -> str:
        return "the report"

    @work(name="incident.audit")
    def audit(ctx: Context) -> Any:
        return ctx.queue([fetch(page=page) for page in range(30)]).next([report()])

    enqueue(audit())
    drain(raises=False)
    with running_worker():
        resize(browser, 1400)
        browser.get(f"{live_server.url}/admin/django_ayework/")
        browser.find_element("link text", "Groups").click()
        browser.find_element("css selector", "#result_list th a").click()  # the only group of the list
        eventually(lambda: "What holds it up" in shown(browser, "main, #main"))
        first = shown(browser, ".ayework-held, .ayework-section")
        assert "incident.fetch" in first
        assert "page 17 is gone" in first
    assert complaints(browser) == []
