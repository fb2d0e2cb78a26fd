"""Settings of the processes under test. ``DATABASE_URL`` names the database."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import environ

if "FAKETIME" in os.environ:
    # libfaketime 0.9.10 makes clock_nanosleep fail when the monotonic clock is left alone, and semaphores
    # wait for ever when it is not. So to sleep is to wait for an event.
    time.sleep = lambda seconds: (threading.Event().wait(float(seconds)), None)[1]

#: Seconds. Short, so that a run of some seconds sees leases lapse.
LEASE = 4.0
#: A work may lose its worker often in a run, and must not be dead of that.
ATTEMPTS = 40
#: What docs/operations/deployment.md recommends for silent networks, in proportion to the lease.
POSTGRES_OPTIONS = {
    "connect_timeout": 2,
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    "tcp_user_timeout": 3_000,
}
MYSQL_OPTIONS = {"charset": "utf8mb4", "connect_timeout": 2, "read_timeout": 4, "write_timeout": 4}
#: Seconds that SQLite waits for the write lock.
SQLITE_TIMEOUT = 5
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": SQLITE_TIMEOUT,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "django.db.backends.postgresql": POSTGRES_OPTIONS,
    "django.db.backends.mysql": MYSQL_OPTIONS,
    "django.db.backends.sqlite3": SQLITE_OPTIONS,
}


def database(url: str) -> dict[str, Any]:
    """Return the settings of the database under test."""
    config: dict[str, Any] = dict(environ.Env.db_url_config(url))
    return config | {
        "OPTIONS": OPTIONS[config["ENGINE"]],
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }


DATABASES = {"default": database(os.environ.get("DATABASE_URL") or "sqlite:///:memory:")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only for fault injection"
USE_TZ = True
INSTALLED_APPS = ["django_ayework", "chaos.apps.ChaosConfig"]
AYEWORK: dict[str, Any] = {
    "LEASE": LEASE,
    "STATEMENT_TIMEOUT": LEASE / 2,
    "POLL_INTERVAL": 0.2,
    "SHUTDOWN_GRACE": 3.0,
    "RETRY": {"attempts": ATTEMPTS, "base": 0.05, "max": 0.4},
    "ON_EVENT": "chaos.works.on_event",
}
if url := os.environ.get("CHAOS_REDIS"):
    AYEWORK |= {"REDIS_URL": url, "QUEUES": {"default": {"DELIVERY": "redis-streams"}}}
if os.environ.get("CHAOS_TROUBLE"):
    AYEWORK |= {
        "ON_ERROR": "chaos.trouble.on_error",
        "ON_FAILURE": "chaos.trouble.on_failure",
        "LOG_CONTEXT": "chaos.trouble.log_context",
        "MIDDLEWARE": ["chaos.trouble.around", "chaos.trouble.around_async"],
    }
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stream": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"level": "WARNING", "handlers": ["stream"]},
    "loggers": {"django_ayework": {"level": "INFO"}},
}
