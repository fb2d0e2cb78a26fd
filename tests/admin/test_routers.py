"""The pages where a router of the project leads away from the queue's database."""

import pytest
from django.db import connections

from django_ayework.models import Firing, Schedule, StoreEntry
from django_ayework.testing.factories import StoreEntryFactory
from tests.admin.kit import address
from tests.admin.test_schedules import FORM, add_schedule, errors
from tests.marks import each_database

ELSEWHERE = "elsewhere"
pytestmark = [pytest.mark.django_db(databases=["default", ELSEWHERE]), pytest.mark.vendors("sqlite")]


class AwayRouter:
    """Leads to a database that has no tables, as a replica may lack the latest rows."""

    def db_for_read(self, model, **hints):
        return ELSEWHERE if model._meta.app_label == "django_ayework" else None

    db_for_write = db_for_read


@pytest.fixture(scope="module", autouse=True)
def elsewhere(django_db_setup):
    """A database without tables. It is there before the tests, as they ask for it, and was not set up."""
    empty = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": {}}
    connections.settings[ELSEWHERE] = connections.settings["default"] | empty
    yield
    if (session := connections[ELSEWHERE].connection) is not None:
        session.close()  # Django keeps those of databases in memory open
    del connections[ELSEWHERE], connections.settings[ELSEWHERE]


@pytest.fixture(autouse=True)
def routed_away(settings):
    settings.DATABASE_ROUTERS = [AwayRouter()]


def queued(model):
    return model.objects.using("default")


@each_database
def test_a_schedule_is_made_once_changed_run_and_deleted(operator):
    assert add_schedule(operator).status_code == 302
    assert errors(add_schedule(operator)) == {"name": ["Schedule with this Name already exists."]}
    id = str(queued(Schedule).get().pk)
    response = operator.post(address("schedule_change", id), FORM | {"every": "90"})
    assert (response.status_code, queued(Schedule).get().every) == (302, 90)
    operator.post(address("schedule_run", id))
    assert queued(Firing).count() == 1
    delete = address("schedule_delete", id)
    assert "Firings: 1" in operator.get(delete).content.decode()
    assert operator.post(delete, {"post": "yes"}).status_code == 302
    assert (queued(Schedule).count(), queued(Firing).count()) == (0, 0)


def test_ticked_entries_are_deleted(operator):
    StoreEntryFactory(key="a")
    data = {"action": "delete_selected", "_selected_action": ["a"], "post": "yes"}
    assert operator.post(address("storeentry_changelist"), data).status_code == 302
    assert not queued(StoreEntry).exists()
