"""The database server, as somebody who is about to start workers needs to know it."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor

from django_ayework.models import Work
from django_ayework.store.database import connection, fetch

#: How many connections a server takes, by vendor.
MOST_CONNECTIONS = {
    "postgresql": "SELECT current_setting('max_connections')",
    "mysql": "SELECT @@max_connections",
}
#: psycopg's own default.
POOL_SIZE = 4


#: What each server calls its isolation level. On PostgreSQL the driver may choose one for transactions, apart
#: from that of statements outside of them; MariaDB and MySQL have different names for theirs.
ISOLATION = {
    "postgresql": (
        "SELECT current_setting('transaction_isolation'), current_setting('default_transaction_isolation')"
    ),
    "mysql": "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')",
}


def isolation_levels(database: BaseDatabaseWrapper) -> list[str]:
    """Return the isolation levels of a connection: of its transactions, and of statements outside of them."""
    if database.vendor not in ISOLATION:
        return []
    with transaction.atomic(using=database.alias), database.cursor() as cursor:
        cursor.execute(ISOLATION[database.vendor])
        row = cursor.fetchone()
    levels = row if database.vendor == "postgresql" else row[1:]
    return [str(level).lower().replace("-", " ") for level in levels]


def name_of_server() -> str:
    """Return what the database is, once it has answered."""
    fetch("SELECT 1", ())
    return connection().display_name


def missing_migrations() -> list[str]:
    """Return the migrations of this app that were not applied."""
    executor = MigrationExecutor(connection())
    label = Work._meta.app_label
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == label]
    return [step.name for step, _ in executor.migration_plan(targets) if step.app_label == label]


def most_connections() -> int | None:
    """Return how many connections the server takes, of everybody; None where there is no such bound."""
    statement = MOST_CONNECTIONS.get(connection().vendor)
    return None if statement is None else int(fetch(statement, ())[0][0])


def pool_size() -> int | None:
    """Return how many connections the pool of a process has, where Django is told to keep one."""
    pool: Any = connection().settings_dict["OPTIONS"].get("pool")
    if not pool:
        return None
    given = pool if isinstance(pool, dict) else {}
    smallest = given.get("min_size", POOL_SIZE)
    return int(given.get("max_size") or smallest)
