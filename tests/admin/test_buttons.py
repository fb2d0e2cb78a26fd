"""Buttons: each posts to an address of its own, asks a permission, says what it did, and logs it."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin import AdminSite
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from django_ayework import dependency, enqueue
from django_ayework.admin import DeadLetterAdmin, WorkAdmin
from django_ayework.models import BulkAction, DeadLetter, Gate, Schedule, Work, WorkerProcess
from django_ayework.testing import now
from django_ayework.testing.factories import (
    DeadLetterFactory,
    ScheduleFactory,
    WorkerProcessFactory,
    WorkFactory,
)
from tests.admin.kit import address, assert_shows, logged
from tests.app.works import add
from tests.bulk.kit import dead_works, retry_all

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


def gate():
    return Gate.objects.get(id=enqueue(dependency(on=["x"], queue=[add(a=1, b=1)])).id)


def poll(**columns):
    return ScheduleFactory(name="poll", due_at=now() + timedelta(hours=1), **columns)


def blue(**columns):
    return WorkerProcessFactory(name="blue", **columns)


def bulk(**columns):
    dead_works(1)
    BulkAction.objects.filter(id=retry_all().id).update(**columns)
    return BulkAction.objects.get()


def standing(row):
    """Return what a button changes."""
    columns = {WorkerProcess: "command", Schedule: "paused", BulkAction: "status"}
    model = type(row) if type(row) in columns else Work
    return model.objects.values_list(columns.get(model, "status"), flat=True).get(pk=row.pk)


COMMAND, CHANGE, BULK = "change_workerprocess", "change_schedule", "bulk_work retry_work"
RETRY = (DeadLetterFactory, "retry_work", "1 work was retried.", "Retried. It was dead.", "pending")


@pytest.mark.parametrize(
    ("button", "make", "permissions", "said", "log", "after"),
    [
        ("work_retry", *RETRY),
        ("deadletter_retry", *RETRY),
        ("work_cancel", WorkFactory, "cancel_work", "1 work was cancelled.", "Cancelled. It was pending.",
         "cancelled"),
        ("gate_open", gate, "change_work", "1 gate was opened.", "Opened by hand. It was blocked.",
         "success"),
        ("gate_give_up", gate, "cancel_work", "1 gate was given up.", "Given up by hand. It was blocked.",
         "cancelled"),
        ("workerprocess_quiet", blue, COMMAND,
         "The worker blue was told to be quiet: it obeys at its next poll.",
         "Told to be quiet; it was alive.", "quiet"),
        ("workerprocess_resume", lambda: blue(quiet=True), COMMAND,
         "The worker blue was told to resume: it obeys at its next poll.",
         "Told to resume; it was quiet.", "resume"),
        ("workerprocess_stop", blue, COMMAND,
         "The worker blue was told to stop: it lets its works end first.",
         "Told to stop; it was alive.", "stop"),
        ("schedule_pause", poll, CHANGE, "The schedule poll was paused.", "Paused. It was active.", True),
        ("schedule_resume", lambda: poll(paused=True), CHANGE, "The schedule poll fires again from now on.",
         "Resumed. It was paused.", False),
        ("bulkaction_stop", bulk, BULK, "Stopped", "Stopped. It was running.", "stopped"),
        ("bulkaction_resume", lambda: bulk(status="stopped"), BULK, "",
         "Resumed. It was stopped.", "running"),
    ],
)  # fmt: skip
def test_a_button_takes_its_permission_a_post_with_the_token_and_a_row_and_acts_once(
    operator, client, client_with, button, make, permissions, said, log, after
):
    row, (model, name) = make(), button.split("_", 1)
    url, page = address(button, str(row.pk)), address(f"{model}_change", str(row.pk))
    before, strict, looks = standing(row), Client(enforce_csrf_checks=True), {f"view_{model}", "view_work"}
    strict.cookies, viewer = operator.cookies, client_with(*looks)
    assert f"/{name}/" not in viewer.get(page).content.decode()
    assert [each.post(url).status_code for each in (strict, viewer)] == [403, 403]
    assert "login" in client.post(url).headers["Location"]
    assert operator.get(url).status_code == 405
    assert operator.post(address(button, "missing")).status_code == 404
    assert (standing(row), logged()) == (before, [])

    presser = client_with(*looks, *permissions.split())
    assert f"/{name}/" in presser.get(page).content.decode()
    response = presser.post(url, follow=True)
    assert response.redirect_chain == [(page.replace("/deadletter/", "/work/"), 302)]
    assert said in response.content.decode()
    assert f"/{name}/" not in response.content.decode()
    presser.post(url)
    entry = LogEntry.objects.get()
    assert (standing(row), logged()) == (after, [log])
    assert (entry.object_id, entry.user_id) == (str(row.pk), int(presser.session["_auth_user_id"]))


def test_a_button_that_was_pressed_after_the_session_had_ended_is_not_pressed_by_signing_in(db):
    dead, client = DeadLetterFactory(), Client()
    get_user_model().objects.create_superuser("late", password="late")
    login = client.post(address("work_retry", dead.id))["Location"]
    response = client.post(login, {"username": "late", "password": "late"}, follow=True)
    assert (response.status_code, response["Allow"]) == (405, "POST")
    assert_shows(response.content.decode(), "Nothing was done", "press the button again")
    assert standing(dead) == "dead"


#: A page as themes of the admin have it: without a subtitle, and with the tools beside the buttons that save.
THEMED = """<main>{% block content %}{% block form_top %}{% endblock %}{% block field_sets %}{% endblock %}
{% block submit_buttons_bottom %}{% block object-tools %}{% endblock %}{% endblock %}{% endblock %}</main>"""


@pytest.fixture
def themed(settings, tmp_path):
    """A project that has another page than Django's for changing an object."""
    (tmp_path / "admin").mkdir()
    (tmp_path / "admin" / "change_form.html").write_text(THEMED)
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]


@pytest.mark.usefixtures("themed")
@pytest.mark.parametrize(
    ("button", "make"),
    [
        ("work_retry", DeadLetterFactory),
        ("work_cancel", gate),
        ("schedule_run", poll),
        ("workerprocess_quiet", blue),
        ("bulkaction_stop", bulk),
    ],
)
def test_a_page_has_its_headline_and_buttons_in_any_theme_of_the_admin(page, button, make):
    row = make()
    text = page(f"{button.split('_')[0]}_change", quote(row.pk))
    assert text.count(f'action="{address(button, quote(row.pk))}"') == 1
    assert text.count("ayework-headline") == (0 if button == "bulkaction_stop" else 1)


#: A list as packages have it that add a tool to it and ask whether rows may be added.
WITH_EXPORT = (
    "{%% extends '%s' %%}{%% block object-tools %%}<ul class='object-tools'><li>Export</li>"
    "{%% if has_add_permission %%}{{ block.super }}{%% endif %%}</ul>{%% endblock %%}"
)


@pytest.mark.parametrize(
    ("model_admin", "name", "links"),
    [
        (WorkAdmin, "work_changelist", ["Act on all 1…"]),
        (DeadLetterAdmin, "deadletter_list", ["By cause", "Act on all 1…"]),
    ],
)
def test_a_list_keeps_its_links_if_a_package_replaces_its_tools(
    page, model_admin, name, links, monkeypatch, settings, tmp_path
):
    DeadLetterFactory()
    (tmp_path / "export.html").write_text(WITH_EXPORT % model_admin.change_list_template)
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    monkeypatch.setattr(model_admin, "change_list_template", "export.html")
    assert_shows(page(name), "Export", *links)


class ExportingDeadLetterAdmin(DeadLetterAdmin):
    """Adds a title to every list, and an address of its own, as a package does."""

    def changelist_view(self, request, extra_context=None):
        return super().changelist_view(request, {"title": "With a title", **(extra_context or {})})

    def get_urls(self):
        export = path("export/", lambda request: HttpResponse("theirs"), name=self.page_name("export"))
        return [export, *super().get_urls()]


site = AdminSite()
site.register(DeadLetter, ExportingDeadLetterAdmin)
urlpatterns = [path("desk/", site.urls)]


def test_what_a_subclass_adds_to_the_list_of_dead_letters_is_in_the_plain_list_too(page, settings):
    settings.ROOT_URLCONF = __name__
    for query in ({}, {"reason": "exhausted"}):
        assert_shows(page("deadletter_list", **query), "With a title")


def test_the_file_of_a_cause_has_an_address_that_no_package_takes(operator, page, settings):
    settings.ROOT_URLCONF = __name__
    DeadLetterFactory(error="ValueError: no luck")
    found = re.search(r'href="([^"]+)" download', page("deadletter_changelist"))
    assert "no luck" in operator.get(unescape(found[1])).getvalue().decode()
