"""The admin in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from tests.admin.kit import address, die

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run --window-size=1280,900"
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path}"):
        options.add_argument(flag)
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    options.binary_location = next(path for path in found if path)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.implicitly_wait(10)
    yield driver
    driver.quit()


def sign_in(browser: Any, url: str) -> None:
    """Open a page of the admin as somebody who may do everything."""
    get_user_model().objects.create_superuser("operator", password="open")
    browser.get(url)
    browser.find_element("name", "username").send_keys("operator")
    browser.find_element("name", "password").send_keys("open")
    browser.find_element("css selector", "[type=submit]").click()


@pytest.mark.parametrize("page", ["work_changelist", "deadletter_changelist"])
def test_a_phone_shows_what_failed_and_how_it_stands(browser: Any, live_server: Any, page: str) -> None:
    die("expected the address to have a street, a number, a town and a country, got nothing of the kind")
    screen = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    sign_in(browser, live_server.url + address(page))

    for seen in ("#result_list .ayework-error", "#result_list td:nth-of-type(3)"):
        place = browser.find_element("css selector", seen).rect
        assert place["x"] + place["width"] <= 390
    assert browser.find_element("css selector", "#result_list tbody tr").rect["height"] < 200


def test_an_operator_retries_a_dead_letter(browser: Any, live_server: Any) -> None:
    work, other = die("no luck"), die("other")

    sign_in(browser, live_server.url + address("deadletter_changelist"))

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
