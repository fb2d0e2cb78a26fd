"""What MariaDB and MySQL say of themselves. Some tables need the privilege PROCESS."""

from __future__ import annotations

from typing import Any

from django_ayework.rules.server_diagnosis import OpenTransaction
from django_ayework.store.database import connection, fetch
from django_ayework.store.diagnosis import NAMES

HISTORY = "SELECT COUNT FROM information_schema.innodb_metrics WHERE NAME = 'trx_rseg_history_len'"
#: The moment is in the zone of the server, whatever the zone of the session is.
OLDEST_TRANSACTION = """
SELECT TIMESTAMPDIFF(MICROSECOND, t.trx_started, CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM')) / 1000000,
       t.trx_mysql_thread_id,
       p.USER, p.HOST, p.COMMAND
FROM information_schema.innodb_trx AS t
LEFT JOIN information_schema.processlist AS p ON p.ID = t.trx_mysql_thread_id
WHERE t.trx_mysql_thread_id <> CONNECTION_ID() ORDER BY t.trx_started LIMIT 1
"""
CONNECTIONS = "SHOW GLOBAL STATUS LIKE 'Threads_connected'"
SIZE = f"""
SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN ({", ".join(["%s"] * len(NAMES))})
"""
SETTINGS = """
SELECT @@innodb_buffer_pool_size, @@sql_mode, @@character_set_connection, @@sql_safe_updates,
       @@sql_select_limit
"""
#: MySQL bounds SELECT alone, in milliseconds, and knows no bound of an idle transaction.
LIMITS_OF_MARIADB = "SELECT @@max_statement_time, @@innodb_lock_wait_timeout, @@idle_transaction_timeout"
LIMITS_OF_MYSQL = "SELECT @@max_execution_time / 1000, @@innodb_lock_wait_timeout, @@wait_timeout"


def history_length() -> int:
    """Return how many undo records InnoDB has not purged."""
    return int(fetch(HISTORY, ())[0][0])


def oldest_transaction() -> OpenTransaction | None:
    """Return the oldest transaction that another session has open."""
    for seconds, thread, user, host, command in fetch(OLDEST_TRANSACTION, ()):
        return OpenTransaction(float(seconds), f"thread {thread}, user {user} from {host}, {command}")
    return None


def connections() -> tuple[int, int, str]:
    """Return the connections of the server, how many there may be, and what bounds them."""
    used, most = fetch(CONNECTIONS, ())[0][1], fetch("SELECT @@max_connections", ())[0][0]
    return int(used), int(most), "the server"


def settings() -> dict[str, Any]:
    """Return settings of the server and of this session, with the size of the engine's tables."""
    [(pool, mode, charset, is_safe, most)] = fetch(SETTINGS, ())
    return {
        "buffer_pool": int(pool),
        "tables": int(fetch(SIZE, NAMES)[0][0]),
        "sql_mode": str(mode),
        "charset": str(charset),
        "safe_updates": bool(is_safe),
        "select_limit": int(most),
    }


def session_limits() -> list[float]:
    """Return the bounds of this session for statements, locks and idle transactions, in seconds."""
    is_mariadb = getattr(connection(), "mysql_is_mariadb", False)
    return [*map(float, fetch(LIMITS_OF_MARIADB if is_mariadb else LIMITS_OF_MYSQL, ())[0])]


def idle_limit() -> float:
    """Return after how many seconds the server ends an idle session."""
    return float(fetch("SELECT @@wait_timeout", ())[0][0])
