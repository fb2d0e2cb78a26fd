"""What figures were taken with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "django",
    "psycopg",
    "mysqlclient",
    "pgqueuer",
    "procrastinate",
    "django-ox",
    "django-tasks-db",
    "django-q2",
    "celery",
    "dramatiq",
    "huey",
    "asyncpg",
    "uvloop",
    "redis",
)


def machine() -> dict[str, str]:
    """Return the cores, the Python, and the versions of what is installed of those that are measured."""
    found = {"cores": str(os.cpu_count()), "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
