"""The tests of workers and races behind PgBouncer in transaction mode, and with Django's own pool.

    python -m tests.pgbouncer                      the suites, once for each way to keep connections
    python -m tests.pgbouncer kept -k gates        one of them; the arguments are pytest's
    python -m tests.pgbouncer quick                all of them, with few tests

PostgreSQL is taken from POSTGRES_URL. PgBouncer must be installed; one is started on a port of its own.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.databases import SERVICES

SUITES = ["tests/worker", "tests/races", "tests/supervisor", "tests/modes", "tests/wakeups"]
#: What "quick" runs.
WORKERS = [
    "tests/worker/test_running.py",
    "tests/worker/test_processes.py",
    "tests/races/test_processes.py",
    "tests/wakeups/test_pooled.py",
]
#: How connections are kept, as tests/settings.py knows it.
WAYS = {
    "brief": "a connection for each work (CONN_MAX_AGE 0)",
    "kept": "connections that are kept (CONN_MAX_AGE None)",
    "pool": "connections from Django's pool",
}
SECONDS = 20
CONFIGURATION = """
[databases]
* = host={host} port={port} {login}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 30
{user}
"""


@contextmanager
def pgbouncer(url: str) -> Iterator[str]:
    """Run a PgBouncer before the server of this address; yield the address to use instead."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        sys.exit("There is no pgbouncer here (on Debian: apt-get install pgbouncer).")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # it reads its file as root, and again as the user it becomes
        path = Path(folder, "pgbouncer.ini")
        path.write_text(configuration(url, port))
        with subprocess.Popen([program, "-q", str(path)]) as process:
            try:
                await_port(port, process)
                yield f"postgres://pooled@127.0.0.1:{port}{urlsplit(url).path}"
            finally:
                process.terminate()


def configuration(url: str, own_port: int) -> str:
    parts = urlsplit(url)
    login = f"user='{unquote(parts.username or 'postgres')}'"
    if parts.password:
        login += f" password='{unquote(parts.password)}'"
    return CONFIGURATION.format(
        host=unquote(parts.hostname or "127.0.0.1"),
        port=parts.port or 5432,
        login=login,
        own_port=own_port,
        user="user = nobody" if os.geteuid() == 0 else "",
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("PgBouncer does not answer.")


def run(way: str, url: str, suites: list[str], arguments: list[str]) -> bool:
    """Run the suites; test databases are kept by pytest, as PgBouncer holds on to them, and dropped here."""
    suffix = f"pooled_{os.getpid()}_{way}"
    env = os.environ | {"DATABASE_URL": url, "TEST_CONNECTIONS": way, "TEST_DATABASE_SUFFIX": suffix}
    command = [sys.executable, "-m", "pytest", "--reuse-db", *suites, *arguments]
    return subprocess.run(command, env=env, check=False).returncode == 0


def drop_databases(url: str) -> None:
    """Drop the test databases of this run, whoever is connected to them."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        names = connection.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE %s", [f"test_ayework_pooled_{os.getpid()}_%"]
        ).fetchall()
        for (name,) in names:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def main(arguments: list[str]) -> int:
    quick = arguments[:1] == ["quick"]
    arguments = arguments[quick:]
    chosen = [arguments.pop(0)] if arguments and arguments[0] in WAYS else list(WAYS)
    url = SERVICES["postgres"].url
    if not SERVICES["postgres"].ask():
        sys.exit(f"PostgreSQL: {SERVICES['postgres'].silence}")
    results = {}
    try:
        with pgbouncer(url) as pooled:
            for way in chosen:
                print(f"\n--- behind PgBouncer, with {WAYS[way]}", flush=True)
                suites = WORKERS if quick else SUITES
                results[way] = run(way, pooled, suites, arguments)
    finally:
        drop_databases(url)
    print("\n--- results behind PgBouncer")
    for way, passed in results.items():
        print(f"{way:<7} {'passed' if passed else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
