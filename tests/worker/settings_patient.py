"""The suite's settings for worker processes that are told to stop and may take their time."""

import os
import signal

from django.core.checks import register

from tests.settings_process import *  # noqa: F403
from tests.settings_process import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.worker", "tests.races"]
AYEWORK = {"POLL_INTERVAL": 0.1, "SHUTDOWN_GRACE": 60.0}

if os.environ.get("TEST_SIGNALLED"):  # before the process hears signals, while system checks run
    register(lambda app_configs, **kwargs: os.kill(os.getpid(), signal.SIGTERM) or [])
