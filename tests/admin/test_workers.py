"""Worker processes in the admin: how they stand, and what they can be told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException

from django_ayework import Worker, enqueue
from django_ayework.models import WorkerProcess
from django_ayework.store.database import clock
from django_ayework.testing import time_travel
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.admin.conftest import Page
from tests.admin.kit import address, assert_hides, assert_shows, ids_on
from tests.app.works import add
from tests.browser import complaints
from tests.processes import eventually

pytestmark = pytest.mark.django_db
WORKERS = "workerprocess_changelist"
TICKED = "_selected_action"


def test_workers_that_have_stopped_can_be_left_out(operator: Client) -> None:
    alive, stopped = WorkerProcessFactory(), WorkerProcessFactory(stopped_at=clock.now())
    assert ids_on(operator.get(address(WORKERS))) == [stopped.id, alive.id]
    assert ids_on(operator.get(address(WORKERS, stopped="no"))) == [alive.id]
    assert ids_on(operator.get(address(WORKERS, stopped="yes"))) == [stopped.id]


def press(client: Client, button: str, worker: WorkerProcess) -> Any:
    return client.post(address(f"workerprocess_{button}", worker.id), follow=True)


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({}, "alive"),
        ({"quiet": True}, "quiet"),
        ({"command": "stop"}, "stopping"),
        ({"trouble": "the thread 'settling' is stuck"}, "trouble"),
        ({"trouble": "stuck", "seen_at": clock.now() - timedelta(hours=1)}, "silent"),
        ({"quiet": True, "stopped_at": clock.now()}, "stopped"),
    ],
)
def test_each_state_is_said_in_a_word(page: Page, columns: dict[str, Any], state: str) -> None:
    worker = WorkerProcessFactory(version="v7", **columns)
    listed, shown = page(WORKERS), page("workerprocess_change", worker.id)
    for text in (listed, shown):
        assert_shows(text, f">{state}</span>", "v7")
    time_travel(300)
    assert_hides(page(WORKERS), ">alive</span>")  # the clock is that of the queue


def test_a_page_shows_what_the_worker_holds(operator: Client, django_assert_max_num_queries: Any) -> None:
    worker = WorkerProcessFactory(trouble="<b>stuck")
    mine = WorkFactory(status="running", worker=worker.id, leased_until=clock.now(), started_at=clock.now())
    other = WorkFactory(status="running", worker="another", leased_until=clock.now())
    with django_assert_max_num_queries(10):
        shown = operator.get(address("workerprocess_change", worker.id)).content.decode()
    assert mine.id in shown
    assert other.id not in shown
    assert "&lt;b&gt;stuck" in shown


@pytest.mark.parametrize("command", ["quiet", "resume", "stop"])
def test_buttons_write_the_command_and_a_log_entry(operator: Client, command: str) -> None:
    worker = WorkerProcessFactory(name="blue", quiet=command == "resume")
    response = press(operator, command, worker)
    worker.refresh_from_db()
    assert worker.command == command
    assert "The worker blue was told to" in response.content.decode()
    entry = LogEntry.objects.get()
    was = "quiet" if command == "resume" else "alive"
    assert (entry.object_id, entry.user.username) == (worker.id, "operator")
    assert entry.change_message.startswith("Told to")
    assert f"it was {was}." in entry.change_message


def buttons_of(text: str) -> set[str]:
    return {name for name in ("quiet", "resume", "stop") if f"/{name}/" in text}


@pytest.mark.parametrize(
    ("columns", "buttons"),
    [
        ({}, {"quiet", "stop"}),
        ({"command": "quiet"}, {"resume", "stop"}),
        ({"quiet": True}, {"resume", "stop"}),
        ({"quiet": True, "command": "resume"}, {"quiet", "stop"}),
        ({"command": "stop"}, set()),
        ({"stopped_at": clock.now()}, set()),
    ],
)
def test_a_page_offers_what_would_change_something(
    operator: Client, page: Page, columns: dict[str, Any], buttons: set[str]
) -> None:
    worker = WorkerProcessFactory(**columns)
    assert buttons_of(page("workerprocess_change", worker.id)) == buttons
    for refused in {"quiet", "resume", "stop"} - buttons:
        assert "there was nothing to do" in press(operator, refused, worker).content.decode()
    worker.refresh_from_db()
    assert worker.command == columns.get("command", "")
    assert not LogEntry.objects.exists()


def test_a_command_takes_the_change_permission_and_a_post_with_the_token(
    operator: Client, client_with: Callable[..., Client]
) -> None:
    worker = WorkerProcessFactory()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    assert press(strict, "stop", worker).status_code == 403
    viewer, changer = client_with("view_workerprocess"), client_with("change_workerprocess")
    shown = viewer.get(address("workerprocess_change", worker.id)).content.decode()
    assert not buttons_of(shown)
    assert press(viewer, "stop", worker).status_code == 403
    assert changer.get(address("workerprocess_stop", worker.id)).status_code == 405
    assert changer.post(address("workerprocess_stop", "unknown")).status_code == 404
    worker.refresh_from_db()
    assert worker.command == ""
    press(changer, "stop", worker)
    worker.refresh_from_db()
    assert worker.command == "stop"


def test_ticked_workers_are_told_together(operator: Client) -> None:
    workers = [WorkerProcessFactory(), WorkerProcessFactory(), WorkerProcessFactory(stopped_at=clock.now())]
    data = {"action": "quiet_selected", TICKED: [worker.id for worker in workers]}
    response = operator.post(address(WORKERS), data, follow=True)
    assert "2 workers were told." in response.content.decode()
    assert LogEntry.objects.count() == 2
    assert WorkerProcess.objects.filter(command="quiet").count() == 2


def test_the_part_that_refreshes_itself_takes_the_permission_to_look(
    viewer: Client, client_with: Callable[..., Client]
) -> None:
    worker = WorkerProcessFactory(version="v7")
    part = address("workerprocess_live", worker.id)
    answer = viewer.get(part)
    assert "v7" in answer.content.decode()
    assert "csrf" not in answer.content.decode()
    assert viewer.get(part, headers={"If-None-Match": answer["ETag"]}).status_code == 304
    quoted = WorkerProcessFactory(id="worker_1", version="v8")
    assert "v8" in viewer.get(address("workerprocess_live", quote(quoted.id))).content.decode()
    assert client_with("view_work").get(part).status_code == 403
    assert viewer.get(address("workerprocess_live", "unknown")).status_code == 403


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_an_operator_quiets_and_resumes_a_worker(browser: Any, live_server: Any) -> None:
    with Worker(concurrency=1, name="blue") as worker:
        eventually(lambda: WorkerProcess.objects.filter(id=worker.id).exists())
        browser.get(live_server.url + address("workerprocess_change", worker.id))
        press_in(browser, "quiet")
        eventually(lambda: WorkerProcess.objects.get(id=worker.id).quiet)
        eventually(lambda: browser.find_elements("css selector", "[data-live] .ayework-blocked"))
        waits = enqueue(add(a=1, b=2))
        press_in(browser, "resume")
        assert waits.result(timeout=30) == 3
        eventually(lambda: browser.find_elements("css selector", "[data-live] .ayework-alive"))
        press_in(browser, "stop")
        eventually(lambda: worker.is_stopping)
    assert not complaints(browser)


def press_in(browser: Any, button: str) -> None:
    """Press a button and wait for its message. The page may replace either while it is looked at."""
    told = {"quiet": "was told to be quiet", "resume": "was told to resume", "stop": "was told to stop"}
    eventually(lambda: is_pressed(browser, f"form[action$='/{button}/'] button"))
    eventually(lambda: told[button] in text_in(browser, ".messagelist"))


def is_pressed(browser: Any, selector: str) -> bool:
    try:
        browser.find_element("css selector", selector).click()
    except (NoSuchElementException, StaleElementReferenceException):
        return False
    return True


def text_in(browser: Any, selector: str) -> str:
    try:
        return str(browser.find_element("css selector", selector).text)
    except (NoSuchElementException, StaleElementReferenceException):
        return ""
