"""The settings of workers that serve metrics."""

from tests.supervisor.settings import *  # noqa: F403
from tests.supervisor.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "django_ayework.contrib.prometheus"]
AYEWORK = {"POLL_INTERVAL": 0.1}
