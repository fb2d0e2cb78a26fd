"""Settings of a Django project that has nothing but one peer, which ``BENCH_APP`` names.

With ``BENCH_PERSISTENT`` connections are kept; Django's own default is to close them.
"""

import os

from tests.settings import DATABASES as TEST_DATABASES

APP = os.environ.get("BENCH_APP", "")
BACKENDS = {
    "django_ox": "django_ox.backend.OxBackend",
    "django_tasks_db": "django_tasks_db.DatabaseBackend",
}

DATABASES = TEST_DATABASES
# Commits wait for the disk, as on a project's server.
DATABASES["default"]["OPTIONS"].pop("options", None)
if os.environ.get("BENCH_PERSISTENT"):
    DATABASES["default"]["CONN_MAX_AGE"] = None
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only for measurements"
USE_TZ = True
INSTALLED_APPS = [APP] if APP else []
LOGGING = {"version": 1, "root": {"level": "ERROR"}}
if APP in BACKENDS:
    TASKS = {"default": {"BACKEND": BACKENDS[APP]}}
Q_CLUSTER = {"name": "bench", "orm": "default", "log_level": "WARNING"}
if bulk := os.environ.get("BENCH_BULK"):
    Q_CLUSTER |= {"bulk": int(bulk), "queue_limit": 4 * int(bulk)}
