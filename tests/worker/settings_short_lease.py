"""The suite's settings for worker processes that die: leases lapse soon, and so does the grace."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.worker", "tests.races"]
AYEWORK = {
    "LEASE": 1.0,
    "POLL_INTERVAL": 0.1,
    "SHUTDOWN_GRACE": 1.0,
    "RETRY": {"base": 0.05, "max": 0.1},
}
