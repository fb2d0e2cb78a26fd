"""A bad argument is corrected in a real browser: a wrong value, a right one, the difference, one click."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from django_ayework import Retry, Worker, dependency, enqueue, work
from django_ayework.models import Work
from tests.admin.kit import address
from tests.app.works import add
from tests.browser import complaints, sign_in, start
from tests.processes import eventually

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@work(name="edit.ship", retry=Retry(attempts=1))
def ship(order: int, note: str = "") -> str:
    if order < 0:
        raise ValueError(f"no order {order}")
    return f"order {order}"


@pytest.fixture
def browser(tmp_path: Path, live_server: Any) -> Iterator[Any]:
    driver = start(tmp_path)
    sign_in(driver, live_server.url, get_user_model().objects.create_superuser("operator"))
    complaints(driver)
    yield driver
    driver.quit()


def press(browser: Any, text: str) -> None:
    browser.find_element("xpath", f"//*[self::a or self::button][normalize-space()='{text}']").click()


def test_an_operator_corrects_a_bad_argument_and_the_workflow_goes_on(browser: Any, live_server: Any) -> None:
    bad, last = ship(order=-7), add(a=40, b=2)
    with Worker(concurrency=2):
        enqueue(dependency(on=[bad], queue=[last]))
        handle = enqueue(bad)
        eventually(lambda: Work.objects.filter(id=handle.id, status="dead").exists())

        browser.get(live_server.url + address("work_change", handle.id))
        press(browser, "Edit and retry")
        field = browser.find_element("name", "input-order")
        assert field.get_attribute("value") == "-7"
        field.clear()
        field.send_keys("seven")
        browser.find_element("css selector", ".submit-row [type=submit]").click()
        assert "expected a whole number, got: 'seven'" in browser.find_element("class name", "errorlist").text

        field = browser.find_element("name", "input-order")
        assert field.get_attribute("value") == "seven"
        field.clear()
        field.send_keys("7")
        browser.find_element("css selector", ".submit-row [type=submit]").click()
        assert browser.find_element("css selector", ".ayework-difference tbody tr").text == "order -7 7"
        assert Work.objects.get(id=handle.id).status == "dead"
        browser.find_element("css selector", ".submit-row [type=submit]").click()

        assert "retried with the new input" in browser.find_element("class name", "messagelist").text
        eventually(lambda: Work.objects.filter(id=last.id, status="success").exists())
    assert handle.result() == "order 7"
    browser.refresh()
    assert "Former inputs" in browser.find_element("id", "content").text
    assert not complaints(browser)
