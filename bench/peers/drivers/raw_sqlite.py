"""The least that is a durable queue in an SQLite file: the sqlite3 module, WAL, synchronous NORMAL."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time

from bench.peers.driver import Driver, WorkerCommand, module_command
from bench.peers.job import hit

TABLES = """
CREATE TABLE job (
  id INTEGER PRIMARY KEY, state INTEGER NOT NULL DEFAULT 0, input TEXT NOT NULL,
  queued_at REAL NOT NULL DEFAULT (julianday('now')), started_at REAL, ended_at REAL
);
CREATE INDEX job_waiting ON job (id) WHERE state = 0;
CREATE TABLE written (id INTEGER PRIMARY KEY, number INTEGER NOT NULL);
"""
INSERT = "INSERT INTO job (input) VALUES (?)"
CLAIM = """
UPDATE job SET state = 1, started_at = julianday('now')
WHERE id IN (SELECT id FROM job WHERE state = 0 ORDER BY id LIMIT ?) RETURNING id, input
"""
FINISH = "UPDATE job SET state = 2, ended_at = julianday('now') WHERE id = ?"
WRITE = "INSERT INTO written (number) VALUES (?)"
#: Seconds between two looks of an idle loop.
POLL = 0.01


def connect() -> sqlite3.Connection:
    """Open the file."""
    path = os.environ["BENCH_URL"].removeprefix("sqlite:///")
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def encoded(number: int) -> str:
    """Return a job's input."""
    return f'{{"number": {number}}}'


class RawSQLite(Driver):
    """One connection that commits every statement."""

    def __init__(self) -> None:
        self.connection = connect()

    def prepare(self) -> None:
        """Make the tables."""
        self.connection.executescript(TABLES)

    def clear(self) -> None:
        """Empty them, and the log of the file."""
        self.connection.executescript("DELETE FROM job; DELETE FROM written; PRAGMA wal_checkpoint(TRUNCATE)")

    def enqueue_one(self, number: int) -> None:
        """Insert a row."""
        self.connection.execute(INSERT, [encoded(number)])

    def enqueue_many(self, count: int, way: str) -> None:
        """Insert many in one transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(INSERT, [(encoded(number),) for number in range(count)])
        self.connection.execute("COMMIT")

    def fill_atomic(self, count: int) -> None:
        """The jobs are the same; the loop that does them is another."""
        self.fill(count)

    def pending(self) -> int:
        """Return how many have not ended."""
        found: int = self.connection.execute("SELECT count(*) FROM job WHERE state < 2").fetchone()[0]
        return found

    def worker(self, setting: str) -> WorkerCommand:
        """Start a loop that takes so many at a time."""
        return WorkerCommand(module_command("bench.peers.drivers.raw_sqlite", setting))


def work(batch: int) -> None:
    """Claim so many, do them, finish them; sleep for a moment when there are none."""
    connection = connect()
    while True:
        connection.execute("BEGIN IMMEDIATE")
        jobs = connection.execute(CLAIM, [batch]).fetchall()
        connection.execute("COMMIT")
        for _, given in jobs:
            hit(json.loads(given)["number"])
        if jobs:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(FINISH, [(key,) for key, _ in jobs])
            connection.execute("COMMIT")
        else:
            time.sleep(POLL)


def work_atomically() -> None:
    """Claim one, write its row and finish it, in one transaction each."""
    connection = connect()
    while True:
        connection.execute("BEGIN IMMEDIATE")
        for key, given in connection.execute(CLAIM, [1]).fetchall():
            number = json.loads(given)["number"]
            hit(number)
            connection.execute(WRITE, [number])
            connection.execute(FINISH, [key])
        connection.execute("COMMIT")


def make_driver() -> Driver:
    """Connect."""
    return RawSQLite()


if __name__ == "__main__":
    work_atomically() if sys.argv[1] == "atomic" else work(int(sys.argv[1]))
