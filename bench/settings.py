"""Settings of the measurements: the app and these works, on the database of ``DATABASE_URL``.

``BENCH_ADMIN`` adds what the admin needs, ``BENCH_STREAMS`` (the address of a Redis server) delivery of ids.
"""

import os
from typing import Any

from tests.settings import DATABASES as TEST_DATABASES
from tests.settings import INSTALLED_APPS as TEST_APPS
from tests.settings import MIDDLEWARE as TEST_MIDDLEWARE
from tests.settings import TEMPLATES as TEST_TEMPLATES

DATABASES = TEST_DATABASES
if DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
    # Tests commit without waiting for the disk; what is measured commits as a project's server does.
    DATABASES["default"]["OPTIONS"].pop("options", None)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only for measurements"
USE_TZ = True
#: Some measurements need short leases.
SILENCED_SYSTEM_CHECKS = ["ayework.W008"]
AYEWORK: dict[str, Any] = {"LEASE": float(os.environ.get("BENCH_LEASE", "30"))}
if url := os.environ.get("BENCH_STREAMS"):
    AYEWORK |= {"REDIS_URL": url, "QUEUES": {"default": {"DELIVERY": "redis-streams"}}}
INSTALLED_APPS = ["django_ayework", "bench"]
if os.environ.get("BENCH_ADMIN"):
    INSTALLED_APPS = [*(app for app in TEST_APPS if app.startswith("django.")), *INSTALLED_APPS]
    MIDDLEWARE = TEST_MIDDLEWARE
    TEMPLATES = TEST_TEMPLATES
    ROOT_URLCONF = "bench.urls"
    STATIC_URL = "static/"
    ALLOWED_HOSTS = ["*"]
LOGGING = {"version": 1, "root": {"level": "ERROR"}}
