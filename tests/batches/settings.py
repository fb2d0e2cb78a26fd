"""The suite's settings for worker processes that run batches and die."""

from tests.settings_process import *  # noqa: F403
from tests.settings_process import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.batches"]
AYEWORK = {"LEASE": 1, "POLL_INTERVAL": 0.1, "SHUTDOWN_GRACE": 20.0}
