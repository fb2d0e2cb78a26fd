"""The progress of works and groups, for people outside the admin."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core import signing
from django.template import Context as TemplateContext
from django.template import Template
from django.test import Client, override_settings
from django.urls import NoReverseMatch

from django_ayework import Context, Worker, enqueue, enqueue_many, work
from django_ayework.models import Work
from django_ayework.progress import progress_token, progress_url
from django_ayework.store.database import clock
from django_ayework.testing import drain
from django_ayework.testing.factories import GroupFactory, WorkFactory
from tests.app.works import add, fail
from tests.browser import complaints
from tests.processes import eventually

pytestmark = pytest.mark.django_db
HOSTILE = "<script>window.broken=1</script>"


def running(**progress: Any) -> Work:
    """A work that runs for a minute."""
    return WorkFactory(
        status="running", started_at=clock.now() - timedelta(minutes=1), progress=json.dumps(progress)
    )


def shown(client: Client, work: Any, **options: Any) -> str:
    response = client.get(progress_url(work, **options))
    assert response.status_code == 200
    return response.content.decode()


def rendered(source: str, **context: Any) -> str:
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
def test_a_page_says_how_a_work_stands_and_nothing_more(
    client: Client, columns: dict[str, Any], words: str
) -> None:
    text = shown(client, WorkFactory(type="shop.secret_type", **columns))
    assert f"<span data-live-announce>{words}</span>" in text
    assert "secret" not in text
    assert ("data-live-done" in text) == (columns["status"] in ("success", "dead", "cancelled"))


def test_a_running_work_has_a_bar_a_guess_and_a_note(client: Client) -> None:
    text = shown(client, running(done=25, total=100, note=HOSTILE), title=HOSTILE)
    assert 'value="25" max="100"' in text
    assert "25 of 100 · 25 % · about 3 minutes left" in text
    assert "&lt;script&gt;window" in text
    assert HOSTILE not in text


@pytest.mark.parametrize("progress", [{}, {"done": 3}, {"done": "x", "total": "y"}])
def test_without_a_total_there_is_a_bar_without_a_value(client: Client, progress: dict[str, Any]) -> None:
    text = shown(client, running(**progress))
    assert "<progress" in text
    assert "max=" not in text
    assert " of " not in text


def test_progress_that_cannot_be_read_is_left_out(client: Client) -> None:
    for progress in ("no json", "[1]"):
        assert "In progress" in shown(client, WorkFactory(status="running", progress=progress))


def test_the_result_is_linked_once_there_is_one(client: Client) -> None:
    handle = enqueue(add(a=1, b=2))
    address = progress_url(handle, result_url="/orders/7/")
    assert "/orders/7/" not in client.get(address).content.decode()
    drain()
    assert '<a href="/orders/7/">' in client.get(address).content.decode()


@pytest.mark.parametrize("result_url", ["javascript:alert(1)", "JavaScript:x", "data:text/html,x"])
def test_a_result_is_an_address_of_the_web(result_url: str) -> None:
    with pytest.raises(ValueError, match="expected result_url to be a path or an HTTP address"):
        progress_token("some-id", result_url=result_url)


def test_a_group_shows_how_many_of_its_works_have_ended(client: Client) -> None:
    handles = enqueue_many([add(a=1, b=2), add(a=3, b=4), fail()], together=True)
    of_group = progress_url(handles[0], group=True)
    assert "Waiting to start" in client.get(of_group).content.decode()
    drain(raises=False)  # the third is tried again later
    text = client.get(of_group).content.decode()
    assert "2 of 3 · 66 %" in text
    assert "In progress" in text


def test_a_group_with_failures_says_so(client: Client) -> None:
    group = GroupFactory(open=0, total=5, dead=2)
    text = shown(client, group.id, group=True)
    assert "Finished, with failures" in text
    assert "5 of 5" in text
    assert "data-live-done" in text
    assert "2 failed" in shown(client, GroupFactory(open=1, total=5, dead=2).id, group=True)


def test_a_work_that_is_alone_is_a_group_of_its_own(client: Client) -> None:
    assert "Waiting to start" in shown(client, enqueue(add(a=1, b=2)), group=True)


def test_a_page_costs_two_queries(client: Client, django_assert_max_num_queries: Any) -> None:
    address = progress_url(GroupFactory(open=1, total=5).id, group=True)
    with django_assert_max_num_queries(2):
        client.get(address)


def test_every_token_of_no_use_gets_the_same_answer(client: Client) -> None:
    work = WorkFactory()
    address = progress_url(work)
    gone = progress_url("no-such-work")
    foreign = address.replace(progress_token(work), signing.dumps([work.id, 0, "", ""]))
    changed = address.replace("/works/", "/works/x")
    answers = [client.get(each) for each in (gone, foreign, changed, gone + "part/", changed + "part/")]
    answers.append(client.get(f"/works/{work.id}/"))
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1


def test_a_token_may_have_an_end(client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.AYEWORK = {"PROGRESS_MAX_AGE": timedelta(hours=1)}
    address = progress_url(WorkFactory())
    assert client.get(address).status_code == 200
    later = signing.time.time() + 3_700
    monkeypatch.setattr(signing.time, "time", lambda: later)
    assert client.get(address).status_code == 404
    settings.AYEWORK = {}
    assert client.get(address).status_code == 200


def test_a_page_is_for_reading_and_is_not_passed_on(client: Client) -> None:
    address = progress_url(WorkFactory())
    for each in (address, address + "part/"):
        assert client.post(each).status_code == 405
        answer = client.get(each)
        assert answer["Referrer-Policy"] == "same-origin"
        assert "noindex" in answer["X-Robots-Tag"]
        assert "private" in answer["Cache-Control"]


def test_a_part_that_has_not_changed_costs_no_transfer(client: Client) -> None:
    work = WorkFactory()
    address = progress_url(work) + "part/"
    answer = client.get(address)
    assert client.get(address, headers={"If-None-Match": answer["ETag"]}).status_code == 304
    Work.objects.filter(id=work.id).update(status="cancelled")
    assert client.get(address, headers={"If-None-Match": answer["ETag"]}).status_code == 200


def test_the_tag_takes_handles_ids_and_rows(client: Client) -> None:
    handle = enqueue(add(a=1, b=2))
    for given in (handle, handle.id, handle.state(), Work.objects.get()):
        text = rendered("{% work_progress work %}", work=given)
        assert "Waiting to start" in text
        assert "data-live=" in text
    assert rendered("{% work_progress work %}", work=None).strip() == ""
    assert "no longer exists" in rendered("{% work_progress work %}", work="no-such-work")
    link = rendered("{% progress_url work title='Your order' %}", work=handle)
    assert "<title>Your order</title>" in client.get(link).content.decode()


@override_settings(ROOT_URLCONF="tests.progress.no_urls")
def test_without_the_addresses_the_tag_stands_still() -> None:
    text = rendered("{% work_progress work %}", work=enqueue(add(a=1, b=2)))
    assert "Waiting to start" in text
    assert "data-live=" not in text
    with pytest.raises(NoReverseMatch):
        progress_url("some-id")


def test_a_project_may_replace_the_template(client: Client, settings: Any, tmp_path: Path) -> None:
    place = tmp_path / "django_ayework" / "progress"
    place.mkdir(parents=True)
    (place / "page.html").write_text("ours: {{ figures.words }}")
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [str(tmp_path)]}]
    assert shown(client, WorkFactory()) == "ours: Waiting to start"


@work(name="progress.steps")
def steps(ctx: Context, place: str) -> None:
    ctx.progress(1, 4, "begun")
    eventually(lambda: (Path(place) / "go").exists())
    ctx.progress(4, 4, "all done")


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_the_page_follows_the_work(chromium: Any, live_server: Any, tmp_path: Path) -> None:
    handle = enqueue(steps(place=str(tmp_path)))
    complaints(chromium)  # forgets those of earlier tests
    chromium.get(live_server.url + progress_url(handle, title="Your export", result_url="/"))
    assert chromium.find_element("tag name", "h1").text == "Your export"
    assert "Waiting to start" in chromium.find_element("tag name", "main").text

    def text() -> str:
        return str(chromium.find_element("tag name", "main").text)

    with Worker(concurrency=1):
        eventually(lambda: "1 of 4" in text() and "begun" in text())
        (tmp_path / "go").touch()
        eventually(lambda: "Done" in text() and "See the result" in text())
    announced = chromium.find_element("class name", "ayework-announcer").get_attribute("textContent")
    assert announced == "Done"
    assert not complaints(chromium)
    chromium.get("about:blank")
