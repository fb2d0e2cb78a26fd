"""The second incident in a real browser: many works died the same way after a deploy."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db.models import F

from django_ayework import Retry, enqueue_many, start_bulk_action, work
from django_ayework.models import BulkAction, Work
from django_ayework.testing import drain, running_worker
from tests.admin.kit import address
from tests.browser import complaints
from tests.bulk.kit import dead_works
from tests.processes import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def shown(browser: Any, selector: str) -> str:
    """Wait until an element has a text, and return the text; the page may replace the element at any time."""
    script = f"return document.querySelector({selector!r})?.textContent.trim()"
    return str(eventually(lambda: browser.execute_script(script)))


def acted(browser: Any) -> int:
    """Return how many works the bulk action has acted on, according to the page."""
    return int(re.split(r"\s", shown(browser, ".ayework-bulk strong"))[0].replace(",", ""))


def click(browser: Any, text: str) -> None:
    browser.find_element("xpath", f"//*[self::a or self::button][normalize-space()='{text}']").click()


def test_without_scripts_no_button_is_shown_that_only_a_script_obeys(browser, live_server):
    row = start_bulk_action("retry", {"status": "dead"})
    switch = "Emulation.setScriptExecutionDisabled"
    browser.execute_cdp_cmd(switch, {"value": True})
    try:
        browser.get(live_server.url + address("bulkaction_change", row.pk))
        assert not browser.find_element("css selector", "[data-live-pause]").is_displayed()
    finally:
        browser.execute_cdp_cmd(switch, {"value": False})


def test_an_operator_retries_one_kind_slowly_watches_and_stops(
    browser, live_server, quick_polls, quick_refreshes
):
    broken = [True]

    @work(name="shop.charge")
    def charge(order: int) -> str:
        if broken[0]:
            raise ConnectionError(f"gateway 10.0.0.{order % 5} refused order {order}")
        return f"order {order}"

    enqueue_many([charge(order=number) for number in range(60)], retry=Retry(attempts=1))
    drain(raises=False)
    others = dead_works(3, "no stock")
    broken[0] = False

    browser.get(live_server.url + address("deadletter_changelist"))
    first = browser.find_element("css selector", ".ayework-cause")
    assert first.find_element("css selector", "h2").text == "60 shop.charge"
    assert "ConnectionError: gateway … refused order …" in first.text

    with running_worker(concurrency=4):
        click(browser, "Retry all…")  # the first click
        assert browser.find_element("css selector", "#content h1").text == "Retry: 60 works"
        browser.find_element("id", "id_per_minute").send_keys("200")
        browser.find_element("css selector", ".submit-row [type=submit]").click()  # the second one

        eventually(lambda: acted(browser) >= 4)  # nobody reloads the page
        seen = acted(browser)
        eventually(lambda: acted(browser) > seen)
        assert acted(browser) < 60
        assert "of 60" in shown(browser, ".ayework-bulk strong")
        click(browser, "Stop")  # the third one

        eventually(lambda: BulkAction.objects.get().status == "stopped")
        row = BulkAction.objects.get()
        assert row.per_minute == 200
        assert "stopped" in shown(browser, ".ayework-bulk")
        eventually(lambda: Work.objects.filter(type="shop.charge", status="success").count() == row.done)
        assert Work.objects.filter(type="shop.charge", status="dead").count() == 60 - row.done

        BulkAction.objects.update(per_minute=None)  # all is well: the rest at once
        click(browser, "Resume")
        eventually(lambda: acted(browser) == 60, 90)
        assert shown(browser, ".ayework-bulk .ayework-status") == "done"
        refusals = "return document.querySelectorAll('.ayework-bulk pre').length"
        assert browser.execute_script(refusals) == 0
        eventually(lambda: Work.objects.filter(type="shop.charge", status="success").count() == 60)

    assert Work.objects.filter(type="shop.charge").exclude(delivery=2).count() == 0  # each once more
    assert Work.objects.filter(id__in=others, status="dead", delivery=F("attempt")).count() == 3
    browser.get(live_server.url + address("deadletter_changelist"))
    assert len(browser.find_elements("css selector", ".ayework-cause")) == 1
    assert complaints(browser) == []
