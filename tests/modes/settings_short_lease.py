"""The settings of worker processes that are killed while they run works of these tests."""

from tests.worker.settings_short_lease import *  # noqa: F403
from tests.worker.settings_short_lease import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.modes"]
