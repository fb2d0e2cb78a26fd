"""The least that is a durable queue on MariaDB or MySQL, in plain mysqlclient."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from bench.peers.driver import Driver, WorkerCommand, module_command
from bench.peers.job import hit
from bench.peers.scratch import mysql_connection

TABLES = (
    """
    CREATE TABLE job (
      id bigint AUTO_INCREMENT PRIMARY KEY, state smallint NOT NULL DEFAULT 0, input longtext NOT NULL,
      queued_at datetime(6) NOT NULL DEFAULT current_timestamp(6),
      started_at datetime(6), ended_at datetime(6),
      INDEX job_waiting (state, id)
    )
    """,
    "CREATE TABLE written (id bigint AUTO_INCREMENT PRIMARY KEY, number bigint NOT NULL)",
)
INSERT = "INSERT INTO job (input) VALUES (%s)"
FIND = "SELECT id, input FROM job WHERE state = 0 ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED"
START = "UPDATE job SET state = 1, started_at = now(6) WHERE id IN %s"
FINISH = "UPDATE job SET state = 2, ended_at = now(6) WHERE id IN %s"
WRITE = "INSERT INTO written (number) VALUES (%s)"
#: Seconds between two looks of an idle loop.
POLL = 0.01


def connect() -> Any:
    """Connect; locks are those of the rows that are found."""
    connection = mysql_connection(os.environ["BENCH_URL"])
    connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection


def encoded(number: int) -> str:
    """Return a job's input."""
    return f'{{"number": {number}}}'


class RawMariaDB(Driver):
    """One connection that commits every statement."""

    def __init__(self) -> None:
        self.connection = connect()
        self.cursor = self.connection.cursor()

    def prepare(self) -> None:
        """Make the tables."""
        for statement in TABLES:
            self.cursor.execute(statement)

    def clear(self) -> None:
        """Empty them."""
        self.cursor.execute("TRUNCATE TABLE job")
        self.cursor.execute("TRUNCATE TABLE written")

    def enqueue_one(self, number: int) -> None:
        """Insert a row."""
        self.cursor.execute(INSERT, [encoded(number)])

    def enqueue_many(self, count: int, way: str) -> None:
        """Insert many by the driver's executemany, which makes long statements of them."""
        self.connection.begin()
        self.cursor.executemany(INSERT, [(encoded(number),) for number in range(count)])
        self.connection.commit()

    def fill_atomic(self, count: int) -> None:
        """The jobs are the same; the loop that does them is another."""
        self.fill(count)

    def pending(self) -> int:
        """Return how many have not ended."""
        self.cursor.execute("SELECT count(*) FROM job WHERE state < 2")
        found: int = self.cursor.fetchone()[0]
        return found

    def worker(self, setting: str) -> WorkerCommand:
        """Start a loop that takes so many at a time."""
        return WorkerCommand(module_command("bench.peers.drivers.raw_mariadb", setting))


def work(batch: int) -> None:
    """Claim so many, do them, finish them; sleep for a moment when there are none."""
    connection = connect()
    cursor = connection.cursor()
    while True:
        if not (jobs := claim(connection, cursor, batch)):
            time.sleep(POLL)
            continue
        connection.commit()
        for _, given in jobs:
            hit(json.loads(given)["number"])
        cursor.execute(FINISH, [[key for key, _ in jobs]])


def work_atomically() -> None:
    """Claim one, write its row and finish it, in one transaction each."""
    connection = connect()
    cursor = connection.cursor()
    while True:
        for key, given in claim(connection, cursor, 1):
            number = json.loads(given)["number"]
            hit(number)
            cursor.execute(WRITE, [number])
            cursor.execute(FINISH, [[key]])
        connection.commit()


def claim(connection: Any, cursor: Any, batch: int) -> tuple[tuple[int, str], ...]:
    """Begin a transaction and claim so many in it."""
    connection.begin()
    cursor.execute(FIND, [batch])
    jobs: tuple[tuple[int, str], ...] = cursor.fetchall()
    if jobs:
        cursor.execute(START, [[key for key, _ in jobs]])
    return jobs


def make_driver() -> Driver:
    """Connect."""
    return RawMariaDB()


if __name__ == "__main__":
    work_atomically() if sys.argv[1] == "atomic" else work(int(sys.argv[1]))
