"""The settings of workers that serve metrics."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "django_ayework.contrib.prometheus"]
AYEWORK = {"POLL_INTERVAL": 0.1}
