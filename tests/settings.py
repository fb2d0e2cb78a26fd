"""Settings of the test suite. ``DATABASE_URL`` chooses the database; without it, SQLite.

Every run has test databases of its own, so that two runs on one machine do not meet: their names end in
``TEST_DATABASE_SUFFIX``, by default the id of the process that started the run. Processes it starts, such as
those of pytest-xdist, inherit it. Set it yourself when you use ``--reuse-db``.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import environ

ROOT = Path(__file__).resolve().parent.parent
RUN = os.environ.setdefault("TEST_DATABASE_SUFFIX", str(os.getpid()))


def database(url: str) -> dict[str, Any]:
    config = dict(environ.Env.db_url_config(url))
    options = config.setdefault("OPTIONS", {})
    config["TEST"] = {"NAME": f"test_ayework_{RUN}"}
    if config["ENGINE"] == "django.db.backends.sqlite3":
        options |= {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
        # A file, as threads and worker processes share it.
        config["TEST"]["NAME"] = os.path.join(tempfile.gettempdir(), f"test_ayework_{RUN}.sqlite3")
    elif config["ENGINE"] == "django.db.backends.mysql":
        options |= {"charset": "utf8mb4"}
        config["TEST"]["CHARSET"] = "utf8mb4"
    else:  # no test stops the server, so none needs what was committed to be on its disk at once
        options |= {"options": "-c synchronous_commit=off"}
    return config


def pooled(config: dict[str, Any], way: str) -> dict[str, Any]:
    """Keep connections in this way; whoever says so is behind PgBouncer (see tests/pgbouncer.py)."""
    if way:
        config["DISABLE_SERVER_SIDE_CURSORS"] = True
        config["OPTIONS"].pop("options", None)  # PgBouncer takes none
    if way == "kept":
        config["CONN_MAX_AGE"] = None
    if way == "pool":
        config["OPTIONS"]["pool"] = {"min_size": 0, "max_size": 20, "timeout": 1}
    return config


DATABASES = {
    "default": pooled(
        database(os.environ.get("DATABASE_URL") or f"sqlite:///{ROOT / '.tests.sqlite3'}"),
        os.environ.get("TEST_CONNECTIONS", ""),
    )
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

SECRET_KEY = "only for tests"
ALLOWED_HOSTS = ["*"]
#: Leases of tests are short on purpose.
SILENCED_SYSTEM_CHECKS = ["ayework.W008"]
USE_TZ = True
TIME_ZONE = "UTC"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
# Django 6.1 warns when it is left to guess; older ones do not read it.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
    "django.contrib.staticfiles",
    "django_ayework",
    "example_project.audit",
    "tests.app",
    "tests.patterns",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "tests.csp.content_security_policy",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
