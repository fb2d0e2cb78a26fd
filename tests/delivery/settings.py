"""Settings of processes whose works of one queue are delivered by a Redis server of the test's own."""

import os

from tests.settings_process import *  # noqa: F403
from tests.settings_process import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.delivery"]
AYEWORK = {
    "POLL_INTERVAL": 0.5,
    "LEASE": 5,
    "REDIS_URL": os.environ["TEST_REDIS_URL"],
    "PUBSUB": "polling",
    "QUEUES": {"bulk": {"DELIVERY": "redis-streams"}},
}
