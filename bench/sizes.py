"""How large a database has become, and the vacuum that keeps PostgreSQL's from growing."""

from __future__ import annotations

#: Bytes of our tables, bytes of their indexes, dead rows. What a database does not tell is 0.
SIZES = {
    "postgresql": """
        SELECT sum(pg_table_size(relid)), sum(pg_indexes_size(relid)), sum(n_dead_tup)
        FROM pg_stat_user_tables WHERE relname LIKE 'django_ayework_%'
    """,
    "mysql": """
        SELECT sum(data_length), sum(index_length), 0 FROM information_schema.tables
        WHERE table_schema = database() AND table_name LIKE 'django_ayework_%'
    """,
    "sqlite": """
        SELECT page_count * page_size, 0, 0 FROM pragma_page_count(), pragma_page_size()
    """,
}

#: The server's own rule, with the options of the table where it has some.
VACUUM_IS_DUE = """
SELECT stat.relname
FROM pg_stat_user_tables stat
JOIN pg_class ON pg_class.oid = stat.relid
CROSS JOIN LATERAL (
    SELECT max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold') AS threshold,
           max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor') AS share
    FROM pg_options_to_table(reloptions)
) option
WHERE stat.relname LIKE 'django_ayework_%'
  AND n_dead_tup > coalesce(option.threshold, current_setting('autovacuum_vacuum_threshold'))::float
    + coalesce(option.share, current_setting('autovacuum_vacuum_scale_factor'))::float
    * greatest(reltuples, 0)
"""


def sizes() -> tuple[float, float, float]:
    """Return the MiB of the tables, those of their indexes, and the dead rows."""
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(SIZES[connection.vendor])
        table, index, dead = cursor.fetchone()
    return float(table) / 2**20, float(index) / 2**20, float(dead)


def vacuum_as_the_server_would() -> None:
    """Vacuum what autovacuum would: it looks once a minute, sixty times in an hour that passes in seconds."""
    from django.db import connection

    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(VACUUM_IS_DUE)
        for (table,) in cursor.fetchall():
            cursor.execute(f"VACUUM ANALYZE {table}")
