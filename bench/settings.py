"""Settings of the measurements: nothing but the app and these works, on the database of ``DATABASE_URL``."""

import os

from tests.settings import DATABASES as TEST_DATABASES

DATABASES = TEST_DATABASES
if DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":
    # Tests commit without waiting for the disk; what is measured commits as a project's server does.
    DATABASES["default"]["OPTIONS"].pop("options", None)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only for measurements"
USE_TZ = True
AYEWORK = {"LEASE": float(os.environ.get("BENCH_LEASE", "30"))}
INSTALLED_APPS = ["django_ayework", "bench"]
LOGGING = {"version": 1, "root": {"level": "ERROR"}}
