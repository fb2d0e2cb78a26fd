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


class FilePages(NamedTuple):
    """Sizes of SQLite's file in bytes: the file, its free pages, and its write-ahead log."""

    size: int
    free: int
    log: int


def of_pages(found: FilePages) -> Diagnosis:
    """Judge the free pages and the write-ahead log of SQLite."""
    text = (
        f"The file has {megabytes(found.size)}, {megabytes(found.free)} of it free; the write-ahead log has "
        f"{megabytes(found.log)}."
    )
    is_empty = found.size > SMALL and found.free > found.size * WASTE
    remedy = (
        "A large log means that a read transaction stays open somewhere: find and end it. To give free pages "
        "back, run VACUUM while no worker runs."
    )
    return judged("dead_rows", text, remedy, warns=is_empty or found.log > MUCH_WAL)


# Settings of sessions and of the server


class SessionLimits(NamedTuple):
    """Seconds after which the server ends something in the project's sessions; 0: never."""

    statement: float
    lock: float
    idle_in_transaction: float


def of_limits(found: SessionLimits) -> Diagnosis:
    """Judge the bounds of the project's own sessions; the engine sets those of its sessions itself."""
    names = ("statement", "lock", "idle in transaction")
    parts = [
        f"{name}: {duration(each) if each else 'no bound'}" for name, each in zip(names, found, strict=True)
    ]
    remedy = (
        "Bound transactions that were forgotten: idle_in_transaction_session_timeout on PostgreSQL, "
        "idle_transaction_timeout on MariaDB; see the guide on deployment, sessions of the project."
    )
    text = f"Bounds of the project's sessions: {', '.join(parts)}."
    return judged("session_limits", text, remedy, warns=not found.idle_in_transaction)


class MySQLSettings(NamedTuple):
    """The buffer pool and our tables in bytes; the SQL mode; the character set; what limits statements."""

    buffer_pool: int
    tables: int
    sql_mode: str
    charset: str
    safe_updates: bool = False
    select_limit: int = UNLIMITED_ROWS


def of_mysql_settings(found: MySQLSettings) -> Diagnosis:
    """Judge settings of MariaDB or MySQL."""
    is_strict = "STRICT_" in found.sql_mode
    is_small = found.buffer_pool < found.tables
    is_wide = found.charset == "utf8mb4"
    is_limited = found.safe_updates or found.select_limit < UNLIMITED_ROWS
    text = (
        f"The buffer pool has {megabytes(found.buffer_pool)} for {megabytes(found.tables)} of the queue's "
        f"tables; the SQL mode is {'strict' if is_strict else 'not strict'}; the connection's character set "
        f"is {found.charset}."
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


class SQLiteSettings(NamedTuple):
    """The journal mode, milliseconds of the busy timeout, and the type of the file system; "" if unknown."""

    journal_mode: str
    busy_timeout: int
    file_system: str
    is_in_memory: bool = False


def of_sqlite_settings(found: SQLiteSettings) -> Diagnosis:
    """Judge how SQLite is set up, and where its file is."""
    is_remote = found.file_system.startswith(REMOTE)
    is_wal = found.is_in_memory or found.journal_mode == "wal"
    is_hasty = found.busy_timeout < SHORT_BUSY
    text = (
        f"The journal mode is {found.journal_mode}, the busy timeout {duration(found.busy_timeout / 1000)}, "
        f"the file system {found.file_system or 'not known'}."
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


class Driver(NamedTuple):
    """The module of the driver, its version if it has one of its own, and the version of the database."""

    module: str
    version: str
    server: str


def of_driver(found: Driver) -> Diagnosis:
    """Judge the driver."""
    text = f"{found.server}, by {found.module}{found.version and f' {found.version}'}."
    remedies = {
        "psycopg2": "Install psycopg 3 (django-ayework[postgres]): the engine prepares statements and copies "
        "rows by it.",
        "pymysql": "Install mysqlclient (django-ayework[mysql]): it is what the project is tested with.",
    }
    remedy = remedies.get(found.module.lower(), "")
    return judged("driver", text, remedy, warns=bool(remedy))
