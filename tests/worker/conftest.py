"""Real workers, in this process and in others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.fixtures import always_consistent, fresh_stage, quick_polls, undeclared  # noqa: F401

DEFAULT_PORTS = {"postgresql": 5432, "mysql": 3306}
collect_ignore_glob = [] if settings.configured else ["test_*.py"]
stage = fresh_stage("tests.worker.works")


@pytest.fixture
def patient_env(process_env: dict[str, str]) -> dict[str, str]:
    """The environment of worker processes that let works end."""
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_patient"}


@pytest.fixture
def short_lease_env(process_env: dict[str, str]) -> dict[str, str]:
    """The environment of worker processes whose leases lapse soon."""
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.worker.settings_short_lease"}


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[object]:
    """A proxy before the test database; whoever uses ``cut_off_env`` goes through it."""
    from django.db import connection

    from tests.proxies import Proxy

    config = connection.settings_dict
    if str(config.get("HOST", "")).startswith("/"):
        pytest.skip("the database is reached through a file")
    with Proxy(
        config["HOST"] or "127.0.0.1", int(config["PORT"] or DEFAULT_PORTS[connection.vendor])
    ) as proxy:
        yield proxy


@pytest.fixture
def cut_off_env(process_env: dict[str, str], proxy: object) -> dict[str, str]:
    """The environment of worker processes that go through the proxy."""
    from django.db import connection

    from tests.databases import database_url

    config = connection.settings_dict | {"HOST": "127.0.0.1", "PORT": proxy.port}  # type: ignore[attr-defined]
    return process_env | {
        "DJANGO_SETTINGS_MODULE": "tests.worker.settings_cut_off",
        "DATABASE_URL": database_url(config),
    }


@pytest.fixture
def claimer() -> object:
    """The claims of a worker that serves everything."""
    from django_ayework.rules.controls import Scope
    from django_ayework.worker.claimer import Claimer

    return Claimer("w", Scope())
