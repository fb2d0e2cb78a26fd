"""The settings of worker processes that are cut off from their database, and do not wait for it for long."""

import os

from django_ayework.worker import bounds
from tests.worker.settings_short_lease import *  # noqa: F403

AYEWORK = {
    "LEASE": float(os.environ.get("TEST_LEASE", "30")),
    "POLL_INTERVAL": 0.1,
    "SHUTDOWN_GRACE": 1.0,
    "STATEMENT_TIMEOUT": float(os.environ.get("TEST_STATEMENT_TIMEOUT", "15")),
}
bounds.FAREWELL = 2.0
bounds.LAST_OUTCOMES = 0.2
bounds.LAST_DUTIES = 0.1
bounds.STALL = float(os.environ.get("TEST_STALL", bounds.STALL))
