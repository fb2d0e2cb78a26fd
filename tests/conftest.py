import gc
import importlib.util
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.databases import database_url

#: Those that give a test the database; others are made of them.
FIXTURES = {"db", "transactional_db"}
#: Tables that migrations fill.
FILLED = {"auth_permission", "django_content_type"}


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> Iterator[None]:
    """Empty the tables between tests without those that migrations fill, which then need not be filled again.

    On PostgreSQL do it by DELETE: for a few rows TRUNCATE is much slower.
    """
    from django.core.management.commands import flush
    from django.db import connection

    operations = type(connection.ops)
    sql_flush = operations.sql_flush

    def delete_rows(self: Any, style: Any, tables: list[str], **options: Any) -> list[str]:
        emptied = [table for table in tables if table not in FILLED]
        if connection.vendor == "postgresql":
            return [f"DELETE FROM {self.quote_name(table)}" for table in emptied]
        return sql_flush(self, style, emptied, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations, "sql_flush", delete_rows)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *args, **options: None)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_keepdb, django_db_blocker) -> Iterator[None]:
    """Drop a database of PostgreSQL once everybody has left it: sessions outlive their process a little."""
    yield
    if django_db_keepdb:
        return
    with django_db_blocker.unblock():
        until = time.monotonic() + 10
        while (others := sessions_of_others()) and time.monotonic() < until:
            time.sleep(0.05)
    assert not others, f"Sessions of the test database that nobody has closed: {others}"


def sessions_of_others() -> list[tuple[object, ...]]:
    from django.db import connection

    if connection.vendor != "postgresql":
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, state, backend_start, query_start, query FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return cursor.fetchall()


@pytest.fixture
def database_vendor() -> str:
    """``sqlite``, ``postgresql`` or ``mysql`` (which MariaDB is too)."""
    from django.db import connection

    return connection.vendor


@pytest.fixture
def process_env(transactional_db) -> dict[str, str]:
    """The environment for a process that is to use this test's database, such as a worker."""
    from django.db import connection

    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.settings_process",
        "DATABASE_URL": database_url(connection.settings_dict),
    }


@pytest.fixture
def resolved(settings: Any) -> Any:
    """The settings that come of these values."""
    from django_ayework.conf import get_settings

    def resolve(**given: Any) -> Any:
        settings.AYEWORK = given
        return get_settings()

    return resolve


@pytest.fixture
def redis_url() -> str:
    """A Redis to use; the test is skipped when none answers (see tests/databases.py)."""
    if not (url := os.environ.get("REDIS_URL")):
        pytest.skip("no Redis: REDIS_URL is not set, and `make test` found none")
    return url


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser, started once for all tests of the process."""
    from tests.browser import start

    driver = start(tmp_path_factory.mktemp("browser"))
    yield driver
    driver.quit()


@pytest.fixture
def quick_refreshes(chromium: Any) -> Iterator[None]:
    """Let pages refresh themselves ten times as often."""
    from tests.browser import HURRY

    script = chromium.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HURRY})
    yield
    chromium.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to the run on SQLite what uses no database: it cannot do anything else on another one.

    Leave browsers to SQLite, too, as a page is the same everywhere; processes of a supervisor, and examples,
    to SQLite and PostgreSQL.
    """
    from django.db import connection

    kept = [item for item in items if runs_on(connection.vendor, item)]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def pytest_collection_finish() -> None:
    """Exclude all that is loaded by now from garbage collection, as a look through takes long."""
    gc.freeze()


def runs_on(vendor: str, item: pytest.Item) -> bool:
    if (vendors := item.get_closest_marker("vendors")) and vendor not in vendors.args:
        return False
    if vendor == "sqlite":
        return True
    if vendor == "mysql" and item.path.parent.name in ("supervisor", "patterns"):
        return False
    return uses_database(item) and item.get_closest_marker("browser") is None


def uses_database(item: pytest.Item) -> bool:
    return bool(
        item.get_closest_marker("django_db") or FIXTURES.intersection(getattr(item, "fixturenames", ()))
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("browser") and (missing := missing_for_browser()):
        reason = f"no browser test without {', '.join(missing)}"
        pytest.fail(reason) if os.environ.get("AYEWORK_REQUIRE_BROWSER") else pytest.skip(reason)


def missing_for_browser() -> list[str]:
    missing = [] if importlib.util.find_spec("selenium") else ["selenium"]
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        missing.append("chromium")
    return missing if shutil.which("chromedriver") else [*missing, "chromedriver"]
