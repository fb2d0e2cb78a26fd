"""Django's tasks, run as works; the backend is chosen by settings alone."""

import pytest
from django.conf import settings as django_settings

from tests.fixtures import consistent, quick_polls  # noqa: F401

collect_ignore_glob = [] if django_settings.configured else ["test_*.py"]
OURS = "django_ayework.contrib.tasks.AyeworkBackend"


@pytest.fixture(autouse=True)
def backend(settings):
    """The default backend, for every queue; tasks are tried once."""
    from django_ayework.contrib.tasks.framework import task_backends

    once = {"RETRY": {"attempts": 1}}
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": [], "OPTIONS": once},
        "plain": {"BACKEND": OURS},
    }
    return task_backends["default"]


@pytest.fixture
def sent():
    """The signals of tasks that were sent, with their keywords."""
    from tests.tasks.kit import record

    with record() as seen:
        yield seen
