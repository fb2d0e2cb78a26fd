"""Settings of the example project; every value that differs between machines comes from the environment.

``DATABASE_URL`` chooses the database: an SQLite file by default, or for example
``postgres://user:password@localhost/name`` or ``mysql://root@127.0.0.1:3306/test``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import environ

PROJECT = Path(__file__).resolve().parent
VAR = PROJECT / "var"
VAR.mkdir(exist_ok=True)

env = environ.Env()
if (PROJECT.parent / ".env").exists():
    env.read_env(PROJECT.parent / ".env")

DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env.str("SECRET_KEY", default="only-for-development-never-in-production")
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_ayework",
    "example_project.audit",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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
            ]
        },
    }
]
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
ASGI_APPLICATION = "example_project.asgi.application"

# What each kind of database wants for many short concurrent transactions.
DATABASE_OPTIONS: dict[str, dict[str, Any]] = {
    "django.db.backends.sqlite3": {
        # Take the write lock at BEGIN: a transaction that reads first and writes later would otherwise
        # fail at once with "database is locked" when another one wrote in between.
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    },
    "django.db.backends.mysql": {"charset": "utf8mb4"},
}


def database() -> dict[str, Any]:
    """Return the database that ``DATABASE_URL`` names, with the options its kind wants."""
    fallback = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(VAR / "db.sqlite3")}
    chosen: dict[str, Any] = env.db_url("DATABASE_URL") if env.str("DATABASE_URL", default="") else fallback
    wanted = DATABASE_OPTIONS.get(chosen["ENGINE"], {})
    return chosen | {"OPTIONS": wanted | chosen.get("OPTIONS", {})}


DATABASES = {"default": database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AYEWORK = {"CONCURRENCY": env.int("AYEWORK_CONCURRENCY", default=4)}

LANGUAGE_CODE = "en-gb"
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
USE_TZ = True
STATIC_URL = "static/"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        "django_ayework": {"level": env.str("LOG_LEVEL", default="INFO")},
        "example_project": {"level": env.str("LOG_LEVEL", default="INFO")},
    },
}
