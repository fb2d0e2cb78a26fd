"""The suite's settings for worker processes that know the works of this folder."""

from tests.settings_process import *  # noqa: F403
from tests.settings_process import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.controls"]
AYEWORK = {"POLL_INTERVAL": 0.1, "SHUTDOWN_GRACE": 60.0}
