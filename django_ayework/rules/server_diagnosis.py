"""What is wrong with the server of the queue's database: figures in, findings with remedies out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_ayework.rules.diagnosis import Diagnosis, few, judged
from django_ayework.rules.formatting import counted, duration

#: Seconds for which a transaction may be open: longer is worth a warning, or a problem.
LONG, VERY_LONG = 300.0, 3600.0
#: Dead rows of a table from which on they are worth a warning.
MANY_DEAD = 50_000
#: Bytes of an index, or of a file, below which its waste does not matter; and the part that does.
SMALL, WASTE = 10 * 2**20, 0.6
#: Bytes of write-ahead log that a replication slot, or SQLite, may hold back.
MUCH_LOG = 2**30
MUCH_WAL = 64 * 2**20
#: Undo records that InnoDB has not purged.
LONG_HISTORY, VERY_LONG_HISTORY = 100_000, 1_000_000
#: From this number of rows on, MySQL's ``sql_select_limit`` limits nothing. MariaDB and MySQL have 2⁶⁴ - 1.
UNLIMITED_ROWS = 2**62
#: Milliseconds for which SQLite should wait for its write lock.
SHORT_BUSY = 5000
#: File systems on which SQLite's locks and WAL are not reliable.
REMOTE = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs", "glusterfs", "ceph")


def megabytes(size: float) -> str:
    """Return a number of bytes.

    >>> megabytes(3 * 2**20)
    '3 MB'
    """
    return f"{size / 2**20:.3g} MB"


# Transactions that keep dead rows


class OpenTransaction(NamedTuple):
    """The oldest open transaction of others: its age in seconds, and who has it, in words."""

    seconds: float
    holder: str


def of_transactions(oldest: OpenTransaction | None) -> Diagnosis:
    """Judge the oldest open transaction."""
    if oldest is None:
        return judged("transactions", "No other session has a transaction open.")
    text = f"The oldest open transaction has lasted {duration(oldest.seconds)}: {oldest.holder}."
    remedy = (
        "Find out what the session does, and end it if it was forgotten. Dead rows of all tables stay while "
        "it lasts. Set idle_in_transaction_session_timeout (MariaDB: idle_transaction_timeout)."
    )
    return judged("transactions", text, remedy, warns=oldest.seconds > LONG, fails=oldest.seconds > VERY_LONG)


class VacuumBlocker(NamedTuple):
    """A prepared transaction, or a replication slot, that keeps dead rows or log."""

    name: str
    seconds: float | None = None
    is_active: bool = True
    retained: int | None = None


def of_holders(prepared: Sequence[VacuumBlocker], slots: Sequence[VacuumBlocker]) -> Diagnosis:
    """Judge PostgreSQL's prepared transactions and replication slots."""
    old = [each for each in prepared if (each.seconds or 0.0) > LONG]
    idle = [each for each in slots if not each.is_active]
    large = [each for each in slots if (each.retained or 0) > MUCH_LOG]
    text = f"{counted(len(prepared), 'prepared transaction')}, {counted(len(slots), 'replication slot')}"
    parts = (
        ("prepared for long", [each.name for each in old]),
        ("not in use", [each.name for each in idle]),
        ("retaining much log", [each.name for each in large]),
    )
    wrong = "; ".join(f"{what}: {few(names)}" for what, names in parts if names)
    remedy = (
        "End prepared transactions by COMMIT PREPARED or ROLLBACK PREPARED. Drop slots that nobody uses by "
        "pg_drop_replication_slot(). Both keep dead rows, and slots keep the write-ahead log."
    )
    return judged(
        "holders",
        f"{text}{f' ({wrong})' if wrong else ''}.",
        remedy,
        warns=bool(idle),
        fails=bool(old or large),
    )


# Dead rows and bloat


class TableRows(NamedTuple):
    """Live and dead rows of a table, and seconds since it was vacuumed; None: never."""

    table: str
    live: int
    dead: int
    vacuumed: float | None


def of_dead_rows(tables: Sequence[TableRows], is_on: bool) -> Diagnosis:
    """Judge dead rows on PostgreSQL; ``is_on``: autovacuum is."""
    worst = max(tables, key=lambda each: each.dead, default=TableRows("the tables", 0, 0, None))
    ago = "never vacuumed" if worst.vacuumed is None else f"last vacuumed {duration(worst.vacuumed)} ago"
    text = f"{worst.table} has {worst.dead} dead and {worst.live} live rows, and was {ago}."
    if not is_on:
        text += " Autovacuum is off."
    remedy = (
        "Switch autovacuum on, and let it come more often for this table: ALTER TABLE … SET "
        "(autovacuum_vacuum_scale_factor = 0.02). If it comes and rows stay, see transactions and holders."
    )
    return judged("dead_rows", text, remedy, warns=worst.dead > max(MANY_DEAD, worst.live), fails=not is_on)


class IndexSize(NamedTuple):
    """An index: its size in bytes, and an estimate of the size that its entries need."""

    name: str
    size: float
    needed: float

    @property
    def waste(self) -> float:
        """Which part of it is empty."""
        return max(0.0, 1 - self.needed / self.size) if self.size else 0.0


def of_index_bloat(indexes: Sequence[IndexSize]) -> Diagnosis:
    """Judge how much of the indexes is empty. Small ones do not count."""
    bloated = sorted(
        (each for each in indexes if each.size > SMALL and each.waste > WASTE),
        key=lambda each: each.needed - each.size,
    )
    if not bloated:
        total = megabytes(sum(each.size for each in indexes))
        return judged("index_bloat", f"{len(indexes)} indexes of analysed tables, {total}, none bloated.")
    names = few([f"{each.name} ({megabytes(each.size)}, {each.waste:.0%} empty)" for each in bloated])
    remedy = "Run REINDEX INDEX CONCURRENTLY for these, and see dead_rows and transactions for the cause."
    return judged("index_bloat", f"Estimated bloat: {names}.", remedy, warns=True)


def of_history(length: int) -> Diagnosis:
    """Judge InnoDB's history list: undo records that were not purged."""
    text = f"InnoDB's history list has {length} entries."
    remedy = "Find the transaction that is open for long (see transactions): purge waits for it."
    return judged("dead_rows", text, remedy, warns=length > LONG_HISTORY, fails=length > VERY_LONG_HISTORY)


def of_pages(size: int, free: int, log: int) -> Diagnosis:
    """Judge the sizes in bytes of SQLite's file, of its free pages, and of its write-ahead log."""
    text = (
        f"The file has {megabytes(size)}, {megabytes(free)} of it free; the write-ahead log has "
        f"{megabytes(log)}."
    )
    is_empty = size > SMALL and free > size * WASTE
    remedy = (
        "A large log means that a read transaction stays open somewhere: find and end it. To give free pages "
        "back, run VACUUM while no worker runs."
    )
    return judged("dead_rows", text, remedy, warns=is_empty or log > MUCH_WAL)


# Settings of sessions and of the server


def of_limits(statement: float, lock: float, idle: float) -> Diagnosis:
    """Judge the bounds of the project's own sessions in seconds, 0 for none.

    The engine sets those of its sessions itself.
    """
    bounds = {"statement": statement, "lock": lock, "idle in transaction": idle}
    parts = [f"{name}: {duration(bound) if bound else 'no bound'}" for name, bound in bounds.items()]
    remedy = (
        "Bound transactions that were forgotten: idle_in_transaction_session_timeout on PostgreSQL, "
        "idle_transaction_timeout on MariaDB; see the guide on deployment, sessions of the project."
    )
    text = f"Bounds of the project's sessions: {', '.join(parts)}."
    return judged("session_limits", text, remedy, warns=not idle)


def of_mysql_settings(
    buffer_pool: int, tables: int, sql_mode: str, charset: str, safe_updates: bool, select_limit: int
) -> Diagnosis:
    """Judge settings of MariaDB or MySQL. The buffer pool and our tables are in bytes."""
    is_strict = "STRICT_" in sql_mode
    is_small = buffer_pool < tables
    is_wide = charset == "utf8mb4"
    is_limited = safe_updates or select_limit < UNLIMITED_ROWS
    text = (
        f"The buffer pool has {megabytes(buffer_pool)} for {megabytes(tables)} of the queue's tables; the "
        f"SQL mode is {'strict' if is_strict else 'not strict'}; the connection's character set is {charset}."
    )
    if is_limited:
        text += " sql_safe_updates or sql_select_limit is set."
    remedies = (
        ("Raise innodb_buffer_pool_size.", is_small),
        ("Add STRICT_TRANS_TABLES to sql_mode: values that do not fit are cut otherwise.", not is_strict),
        ("Set OPTIONS['charset'] = 'utf8mb4': other texts are refused.", not is_wide),
        (
            "Reset sql_safe_updates and sql_select_limit where they are set: the one refuses statements, the "
            "other cuts what is read.",
            is_limited,
        ),
    )
    remedy = " ".join(text for text, is_needed in remedies if is_needed)
    fails = is_limited or not is_strict or not is_wide
    return judged("server_settings", text, remedy, warns=is_small, fails=fails)


def of_sqlite_settings(
    journal_mode: str, busy_timeout: int, file_system: str, is_in_memory: bool
) -> Diagnosis:
    """Judge how SQLite is set up, and on which type of file system its file is; "" if unknown.

    The busy timeout is in milliseconds.
    """
    is_remote = file_system.startswith(REMOTE)
    is_wal = is_in_memory or journal_mode == "wal"
    is_hasty = busy_timeout < SHORT_BUSY
    text = (
        f"The journal mode is {journal_mode}, the busy timeout {duration(busy_timeout / 1000)}, the file "
        f"system {file_system or 'not known'}."
    )
    remedies = (
        ("Move the file to a local disk: locks do not hold on a network file system.", is_remote),
        ("Set init_command to 'PRAGMA journal_mode=WAL;'.", not is_wal),
        ("Set OPTIONS['timeout'] = 20.", is_hasty),
    )
    remedy = " ".join(text for text, is_needed in remedies if is_needed)
    return judged("server_settings", text, remedy, warns=not is_wal or is_hasty, fails=is_remote)


def of_integrity(errors: Sequence[str] | None, seconds: float) -> Diagnosis:
    """Judge SQLite's quick check; None: it was ended after so many seconds."""
    if errors is None:
        text = f"The quick check was ended after {duration(seconds)} without an answer."
        return judged("integrity", text, "Run PRAGMA quick_check while there is little to do.", warns=True)
    if not errors:
        return judged("integrity", f"The quick check found nothing in {duration(seconds)}.")
    remedy = "Stop the workers, and restore the file from a backup, or recover it by sqlite3 and .recover."
    return judged("integrity", f"The file is damaged: {few(errors)}.", remedy, fails=True)


def of_driver(module: str, version: str, server: str) -> Diagnosis:
    """Judge the driver by its module; its version is empty if it has none of its own."""
    text = f"{server}, by {module}{version and f' {version}'}."
    remedies = {
        "psycopg2": "Install psycopg 3 (django-ayework[postgres]): the engine prepares statements and copies "
        "rows by it.",
        "pymysql": "Install mysqlclient (django-ayework[mysql]): it is what the project is tested with.",
    }
    remedy = remedies.get(module.lower(), "")
    return judged("driver", text, remedy, warns=bool(remedy))
