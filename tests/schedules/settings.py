"""The suite's settings for processes that declare the schedules of the race."""

from tests.settings_process import *  # noqa: F403
from tests.settings_process import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.schedules.race"]
