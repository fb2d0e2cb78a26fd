"""The settings of supervisors and their children: they are quick to notice, and short of patience."""

import logging
import os
import threading

from django_ayework.worker import bounds
from tests.settings_process import *  # noqa: F403
from tests.settings_process import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.worker", "tests.supervisor"]
AYEWORK = {
    "POLL_INTERVAL": 0.1,
    "LEASE": float(os.environ.get("TEST_LEASE", "30")),
    "SHUTDOWN_GRACE": float(os.environ.get("TEST_GRACE", "60")),
}
bounds.FAREWELL = 1.0
bounds.CHILDREN = 0.5
bounds.BEAT = 0.1
bounds.STALL = float(os.environ.get("TEST_STALL", "60"))

if os.environ.get("TEST_THREAD"):  # which makes a fork unsafe
    threading.Thread(target=threading.Event().wait, daemon=True).start()


class HangingLog(logging.StreamHandler):
    """A handler of the log that does not come back once a process was to be replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        from django_ayework.worker import threads

        threads.LOG_PATIENCE = 0.2  # instead of a second for each record
        super().emit(record)
        if "It is replaced" in record.getMessage():
            threading.Event().wait()


if os.environ.get("TEST_HANGING_LOG"):
    bounds.EXIT = 0.5
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"hanging": {"class": "tests.supervisor.settings.HangingLog"}},
        "root": {"handlers": ["hanging"], "level": "INFO"},
    }
