"""The admin in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from tests.admin.kit import address, die
from tests.browser import sign_in, start

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    driver = start(tmp_path)
    yield driver
    driver.quit()


def open_page(browser: Any, url: str, page: str) -> None:
    """Open a page of the admin as somebody who may do everything."""
    sign_in(browser, url, get_user_model().objects.create_superuser("operator"))
    browser.get(url + page)


@pytest.mark.parametrize("page", ["work_changelist", "deadletter_list"])
def test_a_phone_shows_what_failed_and_how_it_stands(browser: Any, live_server: Any, page: str) -> None:
    die("expected the address to have a street, a number, a town and a country, got nothing of the kind")
    screen = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    open_page(browser, live_server.url, address(page))

    for seen in ("#result_list .ayework-error", "#result_list td:nth-of-type(3)"):
        place = browser.find_element("css selector", seen).rect
        assert place["x"] + place["width"] <= 390
    assert browser.find_element("css selector", "#result_list tbody tr").rect["height"] < 200


def test_an_operator_retries_a_dead_letter(browser: Any, live_server: Any) -> None:
    work, other = die("no luck"), die("other")

    open_page(browser, live_server.url, address("deadletter_list"))

    assert "RuntimeError: no luck" in browser.find_element("id", "result_list").text
    browser.find_element("css selector", f"input[name=_selected_action][value='{work.id}']").click()
    browser.find_element("css selector", "select[name=action] option[value=retry_selected]").click()
    browser.find_element("css selector", "#changelist-form button[name=index]").click()

    assert "1 work was retried." in browser.find_element("class name", "messagelist").text
    left = browser.find_element("id", "result_list").text
    assert "RuntimeError: other" in left
    assert "no luck" not in left
    work.refresh_from_db()
    assert work.status == "pending"

    browser.find_element("css selector", "#result_list th.field-short_id a").click()
    assert browser.find_element("class name", "ayework-headline").text == "shop.fail dead exhausted"
    details = browser.find_element("css selector", ".ayework-scroll details")
    assert "Traceback" not in details.text
    details.find_element("css selector", "summary").click()
    assert "Traceback" in details.text
    browser.find_element("css selector", ".ayework-retry button").click()
    assert "1 work was retried." in browser.find_element("class name", "messagelist").text
    other.refresh_from_db()
    assert other.status == "pending"
    assert not [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]]
