"""Worker processes in the admin: how they stand, and what they can be told."""

from datetime import timedelta

import pytest
from django.contrib.admin.utils import quote
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException

from django_ayework import Worker, enqueue
from django_ayework.models import WorkerProcess
from django_ayework.store.database import clock
from django_ayework.testing import time_travel
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from tests.admin.kit import address, assert_hides, assert_shows, ids_on, logged
from tests.app.works import add
from tests.browser import complaints
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
WORKERS = "workerprocess_changelist"
WORKER = "workerprocess_change"
BUTTONS = ("quiet", "resume", "stop")


def press(client, button, worker):
    return client.post(address(f"workerprocess_{button}", worker.id), follow=True)


def buttons_of(text):
    return {name for name in BUTTONS if f"/{name}/" in text}


def test_a_worker_shows_its_queues_and_load_and_has_a_page_without_a_form(operator, page):
    place = {"host": "<b>h", "pid": 4242, "name": "blue", "queues": "mail,media"}
    worker = WorkerProcessFactory(**place, running=3, concurrency=7)
    stopped = WorkerProcessFactory(queues="", stopped_at=clock.now())
    cells = "&lt;b&gt;h", ">4242<", ">blue<", ">mail,media<", ">3 / 7<", ">all<"
    assert_shows(page(WORKERS), *cells)
    shown = page(WORKER, worker.id)
    assert "blue" in shown
    assert 'name="_save"' not in shown
    for query, found in (
        ({}, [stopped, worker]),
        ({"stopped": "no"}, [worker]),
        ({"stopped": "yes"}, [stopped]),
    ):
        assert ids_on(operator.get(address(WORKERS, **query))) == [each.id for each in found]


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
def test_each_state_is_said_in_a_word(page, columns, state):
    worker = WorkerProcessFactory(version="v7", **columns)
    for text in (page(WORKERS), page(WORKER, worker.id)):
        assert_shows(text, f">{state}</span>", "v7")
    time_travel(300)
    assert_hides(page(WORKERS), ">alive</span>")  # the clock is that of the queue


@each_database
def test_a_page_shows_what_the_worker_holds(operator, django_assert_max_num_queries):
    worker = WorkerProcessFactory(trouble="<b>stuck")
    lease = {"status": "running", "leased_until": clock.now()}
    mine = WorkFactory(worker=worker.id, started_at=clock.now(), **lease)
    other = WorkFactory(worker="another", **lease)
    with django_assert_max_num_queries(10):
        shown = operator.get(address(WORKER, worker.id)).content.decode()
    assert_shows(shown, mine.id, "&lt;b&gt;stuck")
    assert other.id not in shown


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
def test_a_page_offers_what_would_change_something(operator, page, columns, buttons):
    worker = WorkerProcessFactory(**columns)
    assert buttons_of(page(WORKER, worker.id)) == buttons
    for refused in set(BUTTONS) - buttons:
        assert "there was nothing to do" in press(operator, refused, worker).content.decode()
    worker.refresh_from_db()
    assert worker.command == columns.get("command", "")
    assert logged() == []


@each_database
def test_ticked_workers_are_told_together(operator):
    workers = [WorkerProcessFactory(), WorkerProcessFactory(), WorkerProcessFactory(stopped_at=clock.now())]
    data = {"action": "quiet_selected", "_selected_action": [worker.id for worker in workers]}
    response = operator.post(address(WORKERS), data, follow=True)
    assert "2 workers were told." in response.content.decode()
    assert len(logged()) == WorkerProcess.objects.filter(command="quiet").count() == 2


def test_the_part_that_refreshes_itself_takes_the_permission_to_look(viewer, client_with):
    worker = WorkerProcessFactory(version="v7")
    part = address("workerprocess_live", worker.id)
    assert f'data-live="{part}"' in viewer.get(address(WORKER, worker.id)).content.decode()
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
def test_an_operator_quiets_and_resumes_a_worker(browser, live_server):
    def look(selector, do):
        """Do something with an element, which the page may replace meanwhile."""
        try:
            return do(browser.find_element("css selector", selector))
        except (NoSuchElementException, StaleElementReferenceException):
            return None

    def press(button, message):
        eventually(lambda: look(f"form[action$='/{button}/'] button", lambda found: found.click() or True))
        eventually(lambda: message in (look(".messagelist", lambda found: found.text) or ""))

    with Worker(concurrency=1, name="blue") as worker:
        eventually(lambda: WorkerProcess.objects.filter(id=worker.id).exists())
        browser.get(live_server.url + address(WORKER, worker.id))
        press("quiet", "was told to be quiet")
        eventually(lambda: WorkerProcess.objects.get(id=worker.id).quiet)
        eventually(lambda: browser.find_elements("css selector", "[data-live] .ayework-blocked"))
        waits = enqueue(add(a=1, b=2))
        press("resume", "was told to resume")
        assert waits.result(timeout=30) == 3
        eventually(lambda: browser.find_elements("css selector", "[data-live] .ayework-alive"))
        press("stop", "was told to stop")
        eventually(lambda: worker.is_stopping)
    assert not complaints(browser)
