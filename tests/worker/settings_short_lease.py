"""The suite's settings for worker processes that die: leases lapse soon, and so does the grace."""

import os

from django_ayework.worker import bounds
from tests.settings_process import *  # noqa: F403
from tests.settings_process import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.worker", "tests.races"]
AYEWORK = {
    "LEASE": float(os.environ.get("TEST_LEASE", "1")),
    "POLL_INTERVAL": 0.1,
    "SHUTDOWN_GRACE": float(os.environ.get("TEST_GRACE", "1")),
    "RETRY": {"base": 0.05, "max": 0.1},
}
bounds.EXIT = float(os.environ.get("TEST_EXIT", "5"))
