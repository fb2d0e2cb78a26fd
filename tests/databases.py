"""Which databases answer, and the suite once on each that does.

    python -m tests.databases                      what answers, and why the rest does not
    python -m tests.databases answers postgres     the same as an exit status
    python -m tests.databases run -k gates         the suite; the arguments are pytest's

Addresses come from POSTGRES_URL, MARIADB_URL and REDIS_URL. AYEWORK_TEST_ONLY names the databases to use and
AYEWORK_TEST_REQUIRE those that must answer, separated by commas. The suite never depends on Redis: where one
answers, the tests that want it find it in REDIS_URL.
"""

import os
import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

SECONDS = 2


class Silent(Exception):
    """The database is of no use here, and the message says why."""


def check_sqlite(url: str) -> str:
    return f"SQLite {sqlite3.sqlite_version}"


def check_postgres(url: str) -> str:
    try:
        import psycopg
    except ImportError:
        raise Silent("its driver psycopg is not installed") from None
    reach(url)
    try:
        with psycopg.connect(url, connect_timeout=SECONDS) as connection:
            version = connection.info.parameter_status("server_version") or ""
    except psycopg.Error as error:
        raise Silent(" ".join(str(error).split())) from None
    return f"PostgreSQL {version.split()[0]} at {address(url)}"


def check_mariadb(url: str) -> str:
    try:
        import MySQLdb
    except ImportError:
        raise Silent("its driver mysqlclient is not installed") from None
    reach(url)
    parts = urlsplit(url)
    try:
        connection = MySQLdb.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=parts.path.lstrip("/"),
            connect_timeout=SECONDS,
        )
    except MySQLdb.Error as error:
        raise Silent(str(error.args[-1])) from None
    version = connection.get_server_info()
    connection.close()
    product = "MariaDB" if "MariaDB" in version else "MySQL"
    return f"{product} {version.split('-')[0]} at {address(url)}"


def check_redis(url: str) -> str:
    try:
        import redis
    except ImportError:
        raise Silent("its driver redis is not installed") from None
    reach(url)
    try:
        with redis.Redis.from_url(url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS) as client:
            version = client.info("server")["redis_version"]
    except redis.RedisError as error:
        raise Silent(str(error)) from None
    return f"Redis {version} at {address(url)}"


DEFAULT_PORTS = {"postgres": 5432, "postgresql": 5432, "mysql": 3306, "redis": 6379}


def address(url: str) -> str:
    """Where it is, without the password."""
    parts = urlsplit(url)
    host = unquote(parts.hostname or "localhost")
    return host if host.startswith("/") else f"{host}:{parts.port or DEFAULT_PORTS.get(parts.scheme, '?')}"


def reach(url: str) -> None:
    host, _, port = address(url).rpartition(":")
    if not host:  # a directory with a socket: the driver will say
        return
    try:
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
    except OSError:
        raise Silent(f"nothing answers at {address(url)}") from None


@dataclass
class Service:
    title: str
    check: Callable[[str], str]
    variable: str
    default: str = ""
    runs_suite: bool = True
    answer: str = field(default="", init=False)
    silence: str = field(default="", init=False)

    @property
    def url(self) -> str:
        return os.environ.get(self.variable) or self.default

    def ask(self) -> bool:
        try:
            self.answer = self.check(self.url)
        except Silent as silent:
            self.silence = str(silent)
        return bool(self.answer)


SERVICES = {
    "sqlite": Service("SQLite", check_sqlite, "SQLITE_URL"),
    "postgres": Service(
        "PostgreSQL", check_postgres, "POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/test"
    ),
    "mariadb": Service("MariaDB", check_mariadb, "MARIADB_URL", "mysql://root@127.0.0.1:3306/test"),
    "redis": Service("Redis", check_redis, "REDIS_URL", "redis://127.0.0.1:6379/15", runs_suite=False),
}


def database_url(config: dict[str, Any]) -> str:
    """The URL of a database, from Django's settings of it."""
    if config["ENGINE"] == "django.db.backends.sqlite3":
        return f"sqlite:///{config['NAME']}"
    scheme = "mysql" if config["ENGINE"] == "django.db.backends.mysql" else "postgres"
    user, password, host = (quote(str(config[key]), safe="") for key in ("USER", "PASSWORD", "HOST"))
    port = f":{config['PORT']}" if config["PORT"] else ""
    return f"{scheme}://{user}{':' if password else ''}{password}@{host}{port}/{config['NAME']}"


def names(variable: str) -> list[str]:
    chosen = [name for name in re.split(r"[,\s]+", os.environ.get(variable, "")) if name]
    if unknown := set(chosen) - set(SERVICES):
        sys.exit(f"{variable} names {', '.join(sorted(unknown))}; choose from {', '.join(SERVICES)}")
    return chosen


def ask_all() -> None:
    only = names("AYEWORK_TEST_ONLY")
    for name, service in SERVICES.items():
        if only and name not in only:
            service.silence = "not asked for"
        else:
            service.ask()
        silent = f"skipped: {service.title} ({service.silence})"
        print(f"answers: {service.answer}" if service.answer else silent)


CLOSING_LINE = re.compile(r"\d+ (passed|failed|skipped|errors?|deselected)\b.* in [\d.]+s|no tests ran in ")


def run_suite(service: Service, arguments: list[str]) -> tuple[bool, str]:
    """Whether it passed, and the closing line of pytest."""
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    for variable, url in [
        ("DATABASE_URL", service.url),
        ("REDIS_URL", SERVICES["redis"].url if SERVICES["redis"].answer else ""),
    ]:
        env.pop(variable, None)
        if url:
            env[variable] = url
    color = ["--color=yes"] if sys.stdout.isatty() else []
    closing = ""
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *color, *arguments], env=env, stdout=subprocess.PIPE, text=True
    ) as pytest:
        assert pytest.stdout
        for line in pytest.stdout:
            print(line, end="", flush=True)
            plain = re.sub(r"\x1b\[[\d;]*m", "", line).strip("= \n")
            closing = plain if CLOSING_LINE.search(plain) else closing
    return pytest.returncode == 0, closing or f"pytest ended with status {pytest.returncode}"


def run_all(arguments: list[str]) -> int:
    required = names("AYEWORK_TEST_REQUIRE")
    ask_all()
    if missing := [SERVICES[name] for name in required if not SERVICES[name].answer]:
        print("required, and of no use: " + "; ".join(f"{one.title} ({one.silence})" for one in missing))
        return 2
    results = []
    for service in SERVICES.values():
        if service.runs_suite and service.answer:
            print(f"\n--- the suite on {service.answer}", flush=True)
            results.append((service, *run_suite(service, arguments)))
    print("\n--- results" if results else "\n--- nothing was tested")
    for service, passed, closing in results:
        print(f"{service.title:<11} {'passed' if passed else 'FAILED'}   {closing}")
    for service in SERVICES.values():
        if service.silence:
            print(f"{service.title:<11} skipped  {service.silence}")
    return 0 if results and all(passed for _, passed, _ in results) else 1


def main(arguments: list[str]) -> int:
    match arguments:
        case []:
            ask_all()
            return 0
        case ["answers", name] if name in SERVICES:
            if not SERVICES[name].ask():
                print(f"{SERVICES[name].title}: {SERVICES[name].silence}", file=sys.stderr)
            return 0 if SERVICES[name].answer else 1
        case ["run", *rest]:
            return run_all(rest)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
