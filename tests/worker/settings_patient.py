"""The suite's settings for worker processes that are told to stop and may take their time."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.worker", "tests.races"]
AYEWORK = {"POLL_INTERVAL": 0.1, "SHUTDOWN_GRACE": 60.0}
