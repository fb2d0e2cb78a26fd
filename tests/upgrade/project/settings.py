"""Settings of a project that is run with two versions of the package, on the database of ``DATABASE_URL``."""

import os

import environ

config = dict(environ.Env.db_url_config(os.environ["DATABASE_URL"]))
options = config.setdefault("OPTIONS", {})
if config["ENGINE"] == "django.db.backends.sqlite3":
    quick = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    options |= {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": quick}
elif config["ENGINE"] == "django.db.backends.mysql":
    options |= {"charset": "utf8mb4"}

DATABASES = {"default": config}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only for tests"
USE_TZ = True
INSTALLED_APPS = ["django_ayework", "upgraded"]
AYEWORK = {"POLL_INTERVAL": 0.2, "RETRY": {"base": 0.1, "jitter": 0}}
