"""Dumps of the queue that are loaded again."""

import pytest
from django.apps import apps
from django.core import serializers

from tests.fixtures import consistent  # noqa: F401


@pytest.fixture(autouse=True)
def counted_anew():
    """No run is counted for the next test."""
    from tests.backups.works import ran, while_running

    ran.clear()
    while_running.clear()


@pytest.fixture
def backup():
    """Return a function that makes a backup of the queue, and returns one that restores it."""
    found = apps.get_app_config("django_ayework").get_models()
    tables = [model for model in found if not model._meta.proxy]

    def back_up():
        rows = (row for model in tables for row in model._default_manager.all())
        text = serializers.serialize("json", rows)

        def restore():
            for model in tables:
                model._default_manager.all()._raw_delete("default")
            for row in serializers.deserialize("json", text):
                row.save()

        return restore

    return back_up
