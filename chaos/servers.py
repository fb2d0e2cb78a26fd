"""Database servers of the harness's own, in a temporary folder, on ports of their own, on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).parents[1]
#: Small, so that a hog can take the rest.
MAX_CONNECTIONS = 60
#: Seconds within which a server answers after its start.
PATIENCE = 30.0
KEPT = "django_migrations"


class Unavailable(Exception):
    """The database cannot be used here, and the message says why."""


class Server:
    """A database of the harness's own. ``start`` and ``stop`` may follow each other."""

    name: ClassVar[str]
    title: ClassVar[str]
    has_network: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port() if self.has_network else 0
        self._process: subprocess.Popen[bytes] | None = None
        self._added: list[str] = []

    def install(self) -> None:
        """Make the data folder, start, and make the database under test. Raises Unavailable."""
        raise NotImplementedError

    def url(self, port: int = 0) -> str:
        """Return the address of the database under test, by way of another port if one is given."""
        raise NotImplementedError

    def connect(self) -> Any:
        """Open a connection of an administrator, which commits each statement."""
        raise NotImplementedError

    def connect_as_user(self) -> Any:
        """Open a connection as the processes under test do."""
        raise NotImplementedError

    def empty(self) -> None:
        """Delete all rows, and the columns that were added, so that the next run finds nothing."""
        raise NotImplementedError

    def kill_backends(self, choose: Callable[[Sequence[int]], Sequence[int]]) -> int:
        """End the connections that are chosen of those of the processes under test; return how many."""
        raise NotImplementedError

    def deadlocks(self) -> int:
        """Return how many deadlocks the server has counted since its start."""
        return 0

    def version(self) -> str:
        """Return the product and its version."""
        with self.cursor() as cursor:
            cursor.execute("SELECT version()")
            number = re.search(r"\d+\.\d+(\.\d+)?", cursor.fetchone()[0])
        return f"{self.title} {number[0] if number else '?'}"

    def restart_at_once(self) -> None:
        """Restart as after a crash."""
        raise NotImplementedError

    def migrate(self) -> None:
        """Migrate the database under test in a process of its own."""
        env = os.environ | {"DATABASE_URL": self.url(), "DJANGO_SETTINGS_MODULE": "chaos.settings"}
        command = [sys.executable, "-m", "django", "migrate", "--run-syncdb", "--verbosity", "0"]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"migrate failed: {done.stderr[-500:]}")

    def add_column(self, table: str) -> None:
        """Add a nullable column, as the migration of a later version does."""
        column = f"chaos_{len(self._added)}"
        with self.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} ADD COLUMN {column} integer NULL")
        self._added.append(f"ALTER TABLE {table} DROP COLUMN {column}")

    @contextlib.contextmanager
    def cursor(self) -> Iterator[Any]:
        """Yield a cursor of an administrator."""
        with contextlib.closing(self.connect()) as connection:
            yield connection.cursor()

    def stop(self) -> None:
        """End the process that was started, if there is one."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            end(self._process)
            self._process = None

    def _drop_added(self, cursor: Any) -> None:
        for statement in self._added:
            cursor.execute(statement)
        self._added.clear()

    def _run(self, command: Sequence[str], account: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "server.log").open("ab")
        with log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                **identity(account),
            )

    def _await_answer(self) -> None:
        end_at = time.monotonic() + PATIENCE
        while True:
            try:
                self.connect().close()
                return
            except Exception as error:
                if time.monotonic() > end_at or (self._process and self._process.poll() is not None):
                    raise Unavailable(f"the server did not start: {error}") from error
                time.sleep(0.05)


class Postgres(Server):
    """PostgreSQL from /usr/lib/postgresql, or from the path."""

    name = "postgres"
    title = "PostgreSQL"

    def install(self) -> None:
        """Make the cluster, the role and the database."""
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise Unavailable("its driver psycopg is not installed") from None
        self._programs = postgres_programs()
        make_private(self.folder, "postgres")
        command = [
            str(self._programs / "initdb"),
            "-D",
            str(self.folder / "data"),
            "-U",
            "postgres",
            "-A",
            "trust",
        ]
        run([*command, "--no-sync", "--no-locale", "-E", "UTF8"], "postgres")
        self.start()
        with self.cursor() as cursor:
            cursor.execute("CREATE ROLE chaos LOGIN")
            cursor.execute("CREATE DATABASE chaos OWNER chaos")
        self.migrate()

    def start(self) -> None:
        """Start the server; again if the shared memory of the last one is not gone yet."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "max_connections": MAX_CONNECTIONS,
            "shared_buffers": "32MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *options]
        for attempt in range(20):
            self._process = self._run(command, "postgres")
            try:
                return self._await_answer()
            except Unavailable:
                if attempt == 19 or self._process.poll() is None:
                    raise
                time.sleep(0.2)

    def restart_at_once(self) -> None:
        """Stop as ``pg_ctl -m immediate`` does, and start."""
        self.stop()
        self.start()

    def url(self, port: int = 0) -> str:
        """Return the address."""
        return f"postgres://chaos@127.0.0.1:{port or self.port}/chaos"

    def connect(self) -> Any:
        """Connect as superuser; a few connections are kept for it."""
        return self._connect("postgres", self._database())

    def connect_as_user(self) -> Any:
        """Connect as the role of the processes under test."""
        return self._connect("chaos", "chaos")

    def empty(self) -> None:
        """Truncate every table."""
        with self.cursor() as cursor:
            self._drop_added(cursor)
            cursor.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> %s", [KEPT]
            )
            tables = ", ".join(row[0] for row in cursor.fetchall())
            cursor.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")

    def kill_backends(self, choose: Callable[[Sequence[int]], Sequence[int]]) -> int:
        """Terminate backends."""
        with self.cursor() as cursor:
            cursor.execute("SELECT pid FROM pg_stat_activity WHERE usename = 'chaos' ORDER BY pid")
            chosen = choose([row[0] for row in cursor.fetchall()])
            for pid in chosen:
                cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        return len(chosen)

    def deadlocks(self) -> int:
        """Read what the server has counted for the database."""
        with self.cursor() as cursor:
            cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'chaos'")
            return int(cursor.fetchone()[0])

    def _database(self) -> str:
        return "chaos" if (self.folder / "made").exists() else "postgres"

    def migrate(self) -> None:
        """Migrate, and connect to that database from then on."""
        super().migrate()
        (self.folder / "made").touch()

    def _connect(self, user: str, database: str) -> Any:
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=user, dbname=database, autocommit=True, connect_timeout=5
        )


class MariaDB(Server):
    """MariaDB from the path."""

    name = "mariadb"
    title = "MariaDB"

    def install(self) -> None:
        """Make the data folder, the account and the database."""
        try:
            import MySQLdb  # noqa: F401
        except ImportError:
            raise Unavailable("its driver mysqlclient is not installed") from None
        for program in ("mariadb-install-db", "mariadbd"):
            program_path(program)
        make_private(self.folder, "mysql")
        options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        command = [
            program_path("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            *options,
        ]
        run(command, "mysql")
        self.start()
        with self.cursor() as cursor:
            cursor.execute("CREATE DATABASE chaos CHARACTER SET utf8mb4")
            cursor.execute("CREATE USER chaos@127.0.0.1")
            cursor.execute("GRANT ALL ON chaos.* TO chaos@127.0.0.1")
        self.migrate()

    def start(self) -> None:
        """Start the server."""
        options = {
            "datadir": self.folder / "data",
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
            "port": self.port,
            "bind-address": "127.0.0.1",
            "max-connections": MAX_CONNECTIONS,
            "innodb-buffer-pool-size": "64M",
        }
        command = [
            program_path("mariadbd"),
            "--no-defaults",
            "--skip-name-resolve",
            "--innodb-print-all-deadlocks",
        ]
        self._process = self._run(
            [*command, *(f"--{name}={value}" for name, value in options.items())], "mysql"
        )
        self._await_answer()

    def restart_at_once(self) -> None:
        """Kill the server, and start it again."""
        assert self._process
        self._process.kill()
        self._process.wait()
        self.start()

    def stop(self) -> None:
        """End the process that was started: SIGTERM is an orderly shutdown."""
        if self._process is not None:
            self._process.terminate()
            end(self._process)
            self._process = None

    def url(self, port: int = 0) -> str:
        """Return the address."""
        return f"mysql://chaos@127.0.0.1:{port or self.port}/chaos"

    def connect(self) -> Any:
        """Connect as root. The server reserves one connection for root."""
        import MySQLdb

        return MySQLdb.connect(
            unix_socket=str(self.folder / "socket"), user="root", autocommit=True, **self._selected()
        )

    def connect_as_user(self) -> Any:
        """Connect as the account of the processes under test."""
        import MySQLdb

        return MySQLdb.connect(
            host="127.0.0.1",
            port=self.port,
            user="chaos",
            database="chaos",
            autocommit=True,
            connect_timeout=5,
        )

    def migrate(self) -> None:
        """Migrate, and select that database from then on."""
        super().migrate()
        (self.folder / "made").touch()

    def empty(self) -> None:
        """Truncate every table."""
        with self.cursor() as cursor:
            self._drop_added(cursor)
            cursor.execute("SHOW TABLES")
            tables = [row[0] for row in cursor.fetchall() if row[0] != KEPT]
            cursor.execute("SET FOREIGN_KEY_CHECKS = 0")
            for table in tables:
                cursor.execute(f"TRUNCATE {table}")

    def kill_backends(self, choose: Callable[[Sequence[int]], Sequence[int]]) -> int:
        """Kill connections."""
        with self.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE user = 'chaos' ORDER BY id")
            chosen = choose([row[0] for row in cursor.fetchall()])
            for id in chosen:
                with contextlib.suppress(Exception):  # it may have gone by itself
                    cursor.execute(f"KILL CONNECTION {id:d}")
        return len(chosen)

    def deadlocks(self) -> int:
        """Read what InnoDB has counted."""
        with self.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
            row = cursor.fetchone()
        return int(row[1]) if row else 0

    def _selected(self) -> dict[str, str]:
        return {"database": "chaos"} if (self.folder / "made").exists() else {}


class SQLite(Server):
    """A file; the process that would be the server is each of those that use it."""

    name = "sqlite"
    title = "SQLite"
    has_network = False

    def install(self) -> None:
        """Migrate a file that each run gets a copy of."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.place = self.folder
        self.migrate()
        with self.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(self.path, self.folder / "template")

    @property
    def path(self) -> Path:
        """The database file. It is on the small disk while the fault "full disk" is applied."""
        return self.place / "chaos.sqlite3"

    def url(self, port: int = 0) -> str:
        """Return the address."""
        return f"sqlite:///{self.path}"

    def connect(self) -> Any:
        """Open the file."""
        import sqlite3

        connection = sqlite3.connect(self.path, timeout=20, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        return connection

    def connect_as_user(self) -> Any:
        """Open the file."""
        return self.connect()

    def version(self) -> str:
        """Return the version of the library."""
        import sqlite3

        return f"{self.title} {sqlite3.sqlite_version}"

    def empty(self) -> None:
        """Begin with a fresh copy."""
        self._added.clear()
        for old in self.place.glob("chaos.sqlite3*"):
            old.unlink()
        shutil.copy(self.folder / "template", self.path)


SERVERS: dict[str, type[Server]] = {one.name: one for one in (SQLite, Postgres, MariaDB)}


def free_port() -> int:
    """Return a port on loopback that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def end(process: subprocess.Popen[bytes], seconds: float = PATIENCE) -> None:
    """Wait for the end of a process that was told to stop; kill it if it does not come."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def identity(account: str) -> dict[str, Any]:
    """Return the options of a process that must not run as root."""
    if os.geteuid() != 0:
        return {}
    return {"user": account, "group": account, "extra_groups": [], "cwd": "/"}


def run(command: Sequence[str], account: str) -> None:
    """Run a program to its end. Raises Unavailable if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **identity(account))
    if done.returncode:
        raise Unavailable(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout)[-500:]}")


def make_private(folder: Path, account: str) -> None:
    """Make the folder of a server, which its account owns."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        try:
            shutil.chown(folder, account, account)
        except LookupError:
            raise Unavailable(f"there is no account {account}") from None


def program_path(name: str) -> str:
    """Return where a program is. Raises Unavailable."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if not found:
        raise Unavailable(f"{name} is not installed")
    return found


def postgres_programs() -> Path:
    """Return the folder of PostgreSQL's programs, the newest version's. Raises Unavailable."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    folders = [path for path in folders if (path / "initdb").exists()]
    if folders:
        return folders[-1]
    return Path(program_path("initdb")).resolve().parent
