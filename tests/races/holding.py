"""Transactions of other threads that stay open, and acts that must not wait for them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection, connections, transaction

from tests.processes import PATIENCE


@contextmanager
def transaction_elsewhere(act: Callable[[], object]) -> Iterator[None]:
    """Act in a transaction of another thread, which stays open meanwhile."""
    acted, over = threading.Event(), threading.Event()

    def run() -> None:
        with transaction.atomic():
            act()
            acted.set()
            assert over.wait(PATIENCE)

    with in_thread(run):
        assert acted.wait(PATIENCE)
        try:
            yield
        finally:
            over.set()


@contextmanager
def in_thread(act: Callable[[], object]) -> Iterator[None]:
    """Act in another thread meanwhile; raise what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits for a lock"
    if errors:
        raise errors[0]


def somebody_waits() -> bool:
    """Whether another session waits for a lock of this one; of MariaDB, for any lock."""
    waiting = {
        "postgresql": (
            "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        ),
        # innodb_trx comes from a cache that is not refreshed while it is read more than ten times a second
        "mysql": "SHOW GLOBAL STATUS WHERE variable_name = 'Innodb_row_lock_current_waits' AND value > 0",
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(waiting)
        return cursor.fetchone() is not None


def at_once(act: Callable[[], object]) -> None:
    """Act in another thread, which nothing may hold up until it is done."""
    with in_thread(act):
        pass
