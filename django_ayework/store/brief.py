"""Transactions that hardly wait for locks: for what can as well be done later."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from django.db import OperationalError

from django_ayework.store.database import atomic, connection, in_transaction, is_contention

T = TypeVar("T")

#: PostgreSQL looks for deadlocks after a second (``deadlock_timeout``), and picks any victim. A transaction
#: that gives up before that is never the reason why a caller's transaction becomes one.
MILLISECONDS = 250
POSTGRESQL = f"SET LOCAL lock_timeout = {MILLISECONDS}"
#: The least that both MariaDB and MySQL take: a second.
MYSQL = "SET @ayework_lock_wait = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = 1"
MYSQL_AS_BEFORE = "SET SESSION innodb_lock_wait_timeout = @ayework_lock_wait"


def briefly(use_case: Callable[[], T]) -> T | None:
    """Run a use case in a transaction that does not wait long for locks; return None if it would have to.

    Inside a caller's transaction, whose session is the caller's too, it waits as long as any other.
    """
    if in_transaction():
        with atomic():
            return use_case()
    with ExitStack() as session:
        session.enter_context(short_waits())
        try:
            with atomic():
                if connection().vendor == "postgresql":
                    run(POSTGRESQL)
                done = use_case()
                session.close()  # hooks that run after the commit have the session as it was before
                return done
        except OperationalError as error:
            if not is_contention(error):
                raise
            return None


@contextmanager
def short_waits() -> Generator[None]:
    """Shorten how long the session waits for locks, where a transaction cannot say so for itself."""
    vendor = connection().vendor
    if vendor == "mysql":
        run(MYSQL)
        restoring = MYSQL_AS_BEFORE
    elif vendor == "sqlite":
        restoring = f"PRAGMA busy_timeout = {run('PRAGMA busy_timeout')}"
        run(f"PRAGMA busy_timeout = {MILLISECONDS}")
    else:
        yield
        return
    try:
        yield
    finally:
        run(restoring)


def run(sql: str) -> object:
    """Run a statement; return the value that it gives, if it gives one."""
    with connection().cursor() as cursor:
        cursor.execute(sql)
        found = cursor.fetchone() if cursor.description else None
    return found and found[0]
