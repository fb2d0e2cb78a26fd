"""Databases of its own for every contestant, made before and dropped after."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from bench.peers.contestant import Contestant
from tests.databases import SERVICES

#: The Redis database of the measurements. It must be empty, and is emptied.
REDIS_NUMBER = int(os.environ.get("BENCH_REDIS_NUMBER", "14"))
#: Transactions whose leftovers may be there when MariaDB has purged; seconds to wait for that.
PURGED, LONGEST_PURGE = 20, 20.0


class NoScratch(Exception):
    """There is no database to use, and the message says why."""


@contextmanager
def scratch(contestant: Contestant, folder: Path) -> Iterator[str]:
    """Yield the URL of a new database for this contestant, on its service."""
    name = re.sub(r"\W+", "_", f"ayework_bench_{os.getpid()}_{contestant.name}").lower()
    with MAKERS[contestant.database](SERVICES[contestant.database].url, name, folder) as url:
        yield url


@contextmanager
def sqlite(url: str, name: str, folder: Path) -> Iterator[str]:
    """A file, which is removed with the folder."""
    yield f"sqlite:///{folder / name}.sqlite3"


@contextmanager
def postgres(url: str, name: str, folder: Path) -> Iterator[str]:
    """A database of the server."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    try:
        yield renamed(url, name)
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def mariadb(url: str, name: str, folder: Path) -> Iterator[str]:
    """A database of the server."""
    with mysql_connection(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    try:
        yield renamed(url, name)
    finally:
        with mysql_connection(url) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name}")


@contextmanager
def redis_number(url: str, name: str, folder: Path) -> Iterator[str]:
    """A numbered database, shared by those who are on Redis and take turns. It is emptied afterwards."""
    import redis

    own = renamed(url, str(REDIS_NUMBER))
    require_empty(own)
    try:
        yield own
    finally:
        with redis.Redis.from_url(own) as client:
            client.flushdb()


@functools.cache
def require_empty(url: str) -> None:
    """Raise NoScratch when there is something in a Redis database before this run uses it."""
    import redis

    with redis.Redis.from_url(url) as client:
        if keys := client.dbsize():
            raise NoScratch(
                f"Redis database {REDIS_NUMBER} holds {keys} keys of somebody: "
                "set BENCH_REDIS_NUMBER to an empty one"
            )


MAKERS = {"sqlite": sqlite, "postgres": postgres, "mariadb": mariadb, "redis": redis_number}


def renamed(url: str, name: str) -> str:
    """Return the URL with another database's name."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def mysql_connection(url: str) -> Any:
    """Connect with mysqlclient; every statement commits by itself."""
    import MySQLdb

    parts = urlsplit(url)
    return MySQLdb.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path.lstrip("/"),
        autocommit=True,
        charset="utf8mb4",
    )


def settle(url: str) -> None:
    """Let the database do now what it would do in the middle of a phase, of what came before."""
    scheme = urlsplit(url).scheme
    if scheme.startswith("postgres"):
        settle_postgres(url)
    elif scheme == "mysql":
        settle_mariadb(url)


def settle_postgres(url: str) -> None:
    """Let PostgreSQL count what is there, and write what has changed."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")
        with suppress(psycopg.errors.InsufficientPrivilege):
            connection.execute("CHECKPOINT")


def settle_mariadb(url: str) -> None:
    """Wait until MariaDB has purged what was deleted, or for as long as somebody's transaction may keep it.

    It does so in threads of its own, which would go on in the middle of the phase.
    """
    until = time.monotonic() + LONGEST_PURGE
    with mysql_connection(url) as connection, connection.cursor() as cursor:
        length = PURGED + 1
        while length > PURGED and time.monotonic() < until:
            time.sleep(0.02)
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'")
            length = int(cursor.fetchall()[0][1])
