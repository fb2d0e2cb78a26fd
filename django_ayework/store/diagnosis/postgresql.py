"""What PostgreSQL says of itself: its statistics views and settings."""

from __future__ import annotations

from django_ayework.rules.server_diagnosis import IndexSize, OpenTransaction, TableRows, VacuumBlocker
from django_ayework.store.database import fetch
from django_ayework.store.diagnosis import NAMES
from django_ayework.store.dialects import array_text

#: A client's transaction, or that of a standby which feeds back what it still reads.
OLDEST_TRANSACTION = """
SELECT EXTRACT(EPOCH FROM clock_timestamp() - xact_start), pid, usename, application_name,
       COALESCE(host(client_addr), 'a local socket'), state
FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()
  AND (datname = current_database() OR backend_type = 'walsender')
  AND backend_type IN ('client backend', 'walsender', 'background worker')
ORDER BY xact_start LIMIT 1
"""
PREPARED = """
SELECT gid, EXTRACT(EPOCH FROM clock_timestamp() - prepared)::float8, true, NULL
FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT 100
"""
#: A server that is a standby has no current position of its own.
SLOTS = """
SELECT slot_name, NULL, active, CASE WHEN pg_is_in_recovery() THEN NULL
       ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END
FROM pg_replication_slots ORDER BY slot_name LIMIT 100
"""
DEAD_ROWS = """
SELECT relname, n_live_tup, n_dead_tup,
       EXTRACT(EPOCH FROM clock_timestamp() - GREATEST(last_vacuum, last_autovacuum))::float8
FROM pg_stat_user_tables WHERE relname = ANY(%s::text[]) AND pg_table_is_visible(relid)
"""
#: Settings of a table win over those of the server.
AUTOVACUUM = """
SELECT current_setting('autovacuum') = 'on' AND NOT EXISTS (
    SELECT 1 FROM pg_class
    WHERE relname = ANY(%s::text[]) AND pg_table_is_visible(oid)
          AND 'autovacuum_enabled=false' = ANY(COALESCE(reloptions, '{}'))
)
"""
#: An entry of a B-tree takes 8 bytes for its header, 4 for its pointer, and its columns; leaves are filled
#: to nine tenths. Equal entries are merged, so the estimate is rather too large than too small. A
#: table that was never analysed has no figures.
INDEX_SIZES = """
SELECT name, pg_relation_size(oid), (8192 + GREATEST(entries, 0) * (12 + width) / 0.9)::float8
FROM (
    SELECT i.indexrelid AS oid, c.relname AS name, c.reltuples AS entries, (
        SELECT COALESCE(SUM(COALESCE(s.avg_width, 32) + 4), 32)
        FROM pg_attribute AS a
        LEFT JOIN pg_stats AS s
            ON s.schemaname = n.nspname AND s.tablename = t.relname AND s.attname = a.attname
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
    ) AS width
    FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_class AS t ON t.oid = i.indrelid
    JOIN pg_namespace AS n ON n.oid = t.relnamespace
    WHERE t.relname = ANY(%s::text[]) AND pg_table_is_visible(t.oid) AND t.reltuples >= 0
) AS sizes
"""
INVALID = """
SELECT c.relname FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_class AS t ON t.oid = i.indrelid
WHERE t.relname = ANY(%s::text[]) AND pg_table_is_visible(t.oid) AND NOT (i.indisvalid AND i.indisready)
ORDER BY c.relname
"""
#: Of the server, of the role and of the database, the one with the least room first; -1 is no limit.
CONNECTIONS = """
WITH client AS (SELECT usename, datname FROM pg_stat_activity WHERE backend_type = 'client backend')
SELECT used, most, holder FROM (
    SELECT (SELECT COUNT(*) FROM client) AS used, 'the server' AS holder,
           current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int AS most
    UNION ALL
    SELECT (SELECT COUNT(*) FROM client WHERE usename = rolname), 'the role ' || rolname, rolconnlimit
    FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND rolconnlimit >= 0
    UNION ALL
    SELECT (SELECT COUNT(*) FROM client AS c WHERE c.datname = d.datname), 'the database ' || d.datname,
           datconnlimit
    FROM pg_database AS d WHERE d.datname = current_database() AND datconnlimit >= 0
) AS bounds ORDER BY most - used LIMIT 1
"""
#: In milliseconds.
LIMITS = """
SELECT setting::bigint FROM pg_settings
WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout')
ORDER BY CASE name WHEN 'statement_timeout' THEN 1 WHEN 'lock_timeout' THEN 2 ELSE 3 END
"""
#: Of idle sessions, in milliseconds; PostgreSQL 14 and newer.
IDLE = "SELECT setting::bigint FROM pg_settings WHERE name = 'idle_session_timeout'"


def oldest_transaction() -> OpenTransaction | None:
    """Return the oldest transaction that another session has open."""
    for seconds, pid, user, application, host, state in fetch(OLDEST_TRANSACTION, ()):
        named = f" ({application})" if application else ""
        return OpenTransaction(float(seconds), f"process {pid}{named}, user {user} from {host}, {state}")
    return None


def prepared_transactions() -> list[VacuumBlocker]:
    """Return the prepared transactions, the oldest first."""
    return [VacuumBlocker._make(row) for row in fetch(PREPARED, ())]


def replication_slots() -> list[VacuumBlocker]:
    """Return the replication slots with the bytes of log that they retain."""
    return [VacuumBlocker._make(row) for row in fetch(SLOTS, ())]


def table_rows() -> list[TableRows]:
    """Return live and dead rows of the engine's tables, as the statistics have them."""
    return [TableRows._make(row) for row in fetch(DEAD_ROWS, (array_text(NAMES),))]


def vacuums() -> bool:
    """Tell whether autovacuum is on, for the server and for the engine's tables."""
    return bool(fetch(AUTOVACUUM, (array_text(NAMES),))[0][0])


def index_sizes() -> list[IndexSize]:
    """Return the indexes of the engine's tables with estimates of the size that they need."""
    return [IndexSize._make(row) for row in fetch(INDEX_SIZES, (array_text(NAMES),))]


def invalid_indexes() -> list[str]:
    """Return the indexes that the planner does not use, such as those whose concurrent creation failed."""
    return [name for (name,) in fetch(INVALID, (array_text(NAMES),))]


def connections() -> tuple[int, int, str]:
    """Return the connections of clients, how many there may be, and what bounds them."""
    [(used, most, holder)] = fetch(CONNECTIONS, ())
    return used, most, holder


def session_limits() -> list[float]:
    """Return the bounds of this session for statements, locks and idle transactions, in seconds."""
    return [number / 1000 for (number,) in fetch(LIMITS, ())]


def idle_limit() -> float | None:
    """Return after how many seconds the server ends an idle session; None: never."""
    found = fetch(IDLE, ())
    return found[0][0] / 1000 or None if found else None
