"""The progress of works and groups, for people outside the admin."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.core import signing
from django.template import Context as TemplateContext
from django.template import Template
from django.urls import NoReverseMatch

from django_ayework import Context, Worker, cancel, enqueue, enqueue_many, work
from django_ayework.models import Work
from django_ayework.progress import progress_token, progress_url
from django_ayework.store.database import clock
from django_ayework.testing import drain
from django_ayework.testing.factories import GroupFactory, WorkFactory
from tests.admin.kit import assert_hides, assert_shows
from tests.app.works import add, fail
from tests.browser import complaints
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
HOSTILE = "<script>window.broken=1</script>"


def running(**progress):
    """A work that runs for a minute."""
    begun = clock.now() - timedelta(minutes=1)
    return WorkFactory(status="running", started_at=begun, progress=json.dumps(progress))


@pytest.fixture
def shown(client):
    def shown(work, **options):
        response = client.get(progress_url(work, **options))
        assert response.status_code == 200
        return response.content.decode()

    return shown


def rendered(source, **context):
    return Template("{% load ayework %}" + source).render(TemplateContext(context))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"status": "blocked"}, "Waiting for other work"),
        ({"status": "scheduled"}, "Scheduled"),
        ({"status": "scheduled", "attempt": 2}, "Will be tried again"),
        ({"status": "pending"}, "Waiting to start"),
        ({"status": "running"}, "In progress"),
        ({"status": "success"}, "Done"),
        ({"status": "dead", "error": "secret"}, "Failed"),
        ({"status": "cancelled"}, "Cancelled"),
    ],
)
def test_a_page_says_how_a_work_stands_and_nothing_more(shown, columns, words):
    text = shown(WorkFactory(type="shop.secret_type", **columns))
    assert f"<span data-live-announce>{words}</span>" in text
    assert "secret" not in text
    assert ("data-live-done" in text) == (columns["status"] in ("success", "dead", "cancelled"))


@each_database
def test_a_running_work_has_a_bar_a_guess_and_a_note(shown):
    text = shown(running(done=25, total=100, note=HOSTILE), title=HOSTILE)
    figures = "25 of 100 · 25 % · about 3 minutes left"
    assert_shows(text, 'value="25" max="100"', figures, "&lt;script&gt;window")
    assert HOSTILE not in text


def test_without_a_total_there_is_a_bar_without_a_value_and_what_cannot_be_read_is_left_out(shown):
    for progress in ({}, {"done": 3}, {"done": "x", "total": "y"}):
        text = shown(running(**progress))
        assert "<progress" in text
        assert_hides(text, "max=", " of ")
    for unreadable in ("no json", "[1]"):
        assert "In progress" in shown(WorkFactory(status="running", progress=unreadable))


def test_the_result_is_linked_once_there_is_one(shown):
    handle = enqueue(add(a=1, b=2))
    assert "/orders/7/" not in shown(handle, result_url="/orders/7/")
    drain()
    assert '<a href="/orders/7/">' in shown(handle, result_url="/orders/7/")


@pytest.mark.parametrize("result_url", ["javascript:alert(1)", "JavaScript:x", "data:text/html,x"])
def test_a_result_is_an_address_of_the_web(result_url):
    with pytest.raises(ValueError, match="expected result_url to be a path or an HTTP address"):
        progress_token("some-id", result_url=result_url)


@each_database
def test_a_group_shows_how_many_of_its_works_have_ended_and_failed(shown, django_assert_max_num_queries):
    group = enqueue_many([add(a=1, b=2), add(a=3, b=4), fail()], together=True)[0]
    assert "Waiting to start" in shown(group, group=True)
    drain(raises=False)  # the third is tried again later
    assert_shows(shown(group, group=True), "2 of 3 · 66 %", "In progress")
    text = shown(GroupFactory(open=0, total=5, dead=2).id, group=True)
    assert_shows(text, "Finished, with failures", "5 of 5", "data-live-done")
    cancelled = enqueue_many([add(a=1, b=2), add(a=3, b=4)], together=True)
    drain(limit=1)
    cancel(cancelled[1].id)
    text = shown(cancelled[0], group=True, result_url="/result/")
    assert_shows(text, "Finished, partly cancelled", "2 of 2", "data-live-done")
    assert "/result/" not in text
    ended = enqueue_many([add(a=1, b=2), add(a=3, b=4)], together=True)[0]
    drain()
    assert_shows(shown(ended, group=True, result_url="/result/"), "Done", "2 of 2", "/result/")
    cancelled = enqueue_many([add(a=1, b=2), add(a=3, b=4)], together=True)[0]
    cancel(group=cancelled.group_id)
    text = shown(cancelled, group=True)
    assert_shows(text, "Cancelled", "2 of 2")
    assert "partly" not in text
    failing = GroupFactory(open=1, total=5, dead=2).id
    with django_assert_max_num_queries(2):
        assert "2 failed" in shown(failing, group=True)
    assert "Waiting to start" in shown(enqueue(add(a=1, b=2)), group=True), "a work that is alone"


def test_every_token_of_no_use_gets_the_same_answer(client):
    work = WorkFactory()
    address, gone = progress_url(work), progress_url("no-such-work")
    foreign = address.replace(progress_token(work), signing.dumps([work.id, 0, "", ""]))
    changed = address.replace("/works/", "/works/x")
    urls = (gone, foreign, changed, gone + "part/", changed + "part/", f"/works/{work.id}/")
    answers = [client.get(each) for each in urls]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1


def test_a_token_may_have_an_end(client, settings, monkeypatch):
    settings.AYEWORK = {"PROGRESS_MAX_AGE": timedelta(hours=1)}
    address = progress_url(WorkFactory())
    assert client.get(address).status_code == 200
    later = signing.time.time() + 3_700
    monkeypatch.setattr(signing.time, "time", lambda: later)
    assert client.get(address).status_code == 404
    settings.AYEWORK = {}
    assert client.get(address).status_code == 200


def test_a_page_is_for_reading_is_not_passed_on_and_comes_anew_when_it_has_changed(client):
    work = WorkFactory()
    page, part = progress_url(work), progress_url(work) + "part/"
    for url in (page, part):
        assert client.post(url).status_code == 405
        answer = client.get(url)
        assert answer["Referrer-Policy"] == "same-origin"
        assert "noindex" in answer["X-Robots-Tag"]
        assert "private" in answer["Cache-Control"]
    known = {"If-None-Match": answer["ETag"]}
    assert client.get(part, headers=known).status_code == 304
    Work.objects.filter(id=work.id).update(status="cancelled")
    assert client.get(part, headers=known).status_code == 200


def test_the_tag_takes_handles_ids_and_rows(client):
    handle = enqueue(add(a=1, b=2))
    for given in (handle, handle.id, handle.state(), Work.objects.get()):
        text = rendered("{% work_progress work %}", work=given)
        assert "Waiting to start" in text
        assert "data-live=" in text
    assert rendered("{% work_progress work %}", work=None).strip() == ""
    assert "no longer exists" in rendered("{% work_progress work %}", work="no-such-work")
    link = rendered("{% progress_url work title='Your order' %}", work=handle)
    assert "<title>Your order</title>" in client.get(link).content.decode()


def test_without_the_addresses_the_tag_stands_still(settings):
    settings.ROOT_URLCONF = "tests.progress.no_urls"
    text = rendered("{% work_progress work %}", work=enqueue(add(a=1, b=2)))
    assert "Waiting to start" in text
    assert "data-live=" not in text
    missing = r"not a registered namespace; expected .* include\('django_ayework\.progress\.urls'\)"
    with pytest.raises(NoReverseMatch, match=missing):
        progress_url("some-id")


def test_a_project_may_replace_the_template(shown, settings, tmp_path):
    place = tmp_path / "django_ayework" / "progress"
    place.mkdir(parents=True)
    (place / "page.html").write_text("ours: {{ figures.words }}")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]
    assert shown(WorkFactory()) == "ours: Waiting to start"


@work(name="progress.steps")
def steps(ctx: Context, place: str) -> None:
    ctx.progress(1, 4, "begun")
    eventually((Path(place) / "go").exists)
    ctx.progress(4, 4, "all done")


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_the_page_follows_the_work(chromium, quick_refreshes, live_server, tmp_path):
    handle = enqueue(steps(place=str(tmp_path)))
    complaints(chromium)  # forgets those of earlier tests
    chromium.get(live_server.url + progress_url(handle, title="Your export", result_url="/"))
    assert chromium.find_element("tag name", "h1").text == "Your export"

    def shows(*parts):
        text = str(chromium.find_element("tag name", "main").text)
        return all(part in text for part in parts)

    assert shows("Waiting to start")
    with Worker(concurrency=1):
        eventually(lambda: shows("1 of 4", "begun"))
        (tmp_path / "go").touch()
        eventually(lambda: shows("Done", "See the result"))
    announced = chromium.find_element("class name", "ayework-announcer").get_attribute("textContent")
    assert announced == "Done"
    assert not complaints(chromium)
    chromium.get("about:blank")
