"""Settings of processes that look less often than a test lasts: they must be woken."""

import os

from tests.settings_process import *  # noqa: F403
from tests.settings_process import DATABASES, INSTALLED_APPS, database

if os.environ.get("TEST_DIRECT_URL"):
    DATABASES = {**DATABASES, "direct": database(os.environ["TEST_DIRECT_URL"])}
INSTALLED_APPS = [*INSTALLED_APPS, "tests.wakeups"]
AYEWORK = {
    "POLL_INTERVAL": float(os.environ.get("TEST_POLL", "600")),
    "PUBSUB": os.environ.get("TEST_PUBSUB", "auto"),
    "PUBSUB_DATABASE": "direct" if "direct" in DATABASES else None,
    "REDIS_URL": os.environ.get("REDIS_URL") or None,
}
