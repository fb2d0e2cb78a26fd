"""Settings of the measurements: nothing but the app, on the database of ``DATABASE_URL``."""

from tests.settings import DATABASES as TEST_DATABASES

DATABASES = TEST_DATABASES
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only for measurements"
USE_TZ = True
INSTALLED_APPS = ["django_ayework"]
LOGGING = {"version": 1, "root": {"level": "ERROR"}}
