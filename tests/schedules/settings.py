"""The suite's settings for processes that declare the schedules of the race."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.schedules.race"]
