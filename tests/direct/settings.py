"""The settings of processes that enqueue works which skip the queue."""

from tests.worker.settings_short_lease import *  # noqa: F403
from tests.worker.settings_short_lease import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.direct"]
