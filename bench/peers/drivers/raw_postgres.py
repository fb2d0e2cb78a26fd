"""The least that is a durable queue on PostgreSQL, in plain psycopg: what anything in Python has above it."""

from __future__ import annotations

import os
import sys

import psycopg

from bench.peers.driver import Driver, WorkerCommand, module_command
from bench.peers.job import hit

TABLES = """
CREATE TABLE job (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state smallint NOT NULL DEFAULT 0, input jsonb NOT NULL,
  queued_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz, ended_at timestamptz
);
CREATE INDEX job_waiting ON job (id) WHERE state = 0;
CREATE TABLE written (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, number bigint NOT NULL);
"""
INSERT = "INSERT INTO job (input) VALUES (%s)"
INSERT_AND_TELL = (
    "WITH made AS (INSERT INTO job (input) VALUES (%s) RETURNING id) SELECT pg_notify('job', '') FROM made"
)
CLAIM = """
UPDATE job SET state = 1, started_at = now()
WHERE id IN (SELECT id FROM job WHERE state = 0 ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING id, input
"""
FINISH = "UPDATE job SET state = 2, ended_at = now() WHERE id = ANY(%s)"
WRITE = "INSERT INTO written (number) VALUES (%s)"


def encoded(number: int) -> str:
    """Return a job's input."""
    return f'{{"number": {number}}}'


class RawPostgres(Driver):
    """One connection that commits every statement."""

    def __init__(self) -> None:
        self.connection = psycopg.connect(os.environ["BENCH_URL"], autocommit=True)
        self.insert = INSERT

    def prepare(self) -> None:
        """Make the tables."""
        self.connection.execute(TABLES)

    def clear(self) -> None:
        """Empty them."""
        self.connection.execute("TRUNCATE job, written")

    def enqueue_one(self, number: int) -> None:
        """Insert a row."""
        self.connection.execute(self.insert, [encoded(number)])

    def enqueue_paced(self, count: int, gap: float) -> list[float]:
        """Insert rows, and notify in the same transaction."""
        self.insert = INSERT_AND_TELL
        try:
            return super().enqueue_paced(count, gap)
        finally:
            self.insert = INSERT

    def enqueue_many(self, count: int, way: str) -> None:
        """Insert many in one transaction, by COPY or by executemany."""
        with self.connection.transaction(), self.connection.cursor() as cursor:
            if way == "executemany":
                cursor.executemany(INSERT, [(encoded(number),) for number in range(count)])
                return
            with cursor.copy("COPY job (input) FROM STDIN") as copy:
                for number in range(count):
                    copy.write_row((encoded(number),))

    def fill_atomic(self, count: int) -> None:
        """The jobs are the same; the loop that does them is another."""
        self.fill(count)

    def pending(self) -> int:
        """Return how many have not ended."""
        row = self.connection.execute("SELECT count(*) FROM job WHERE state < 2").fetchone()
        return row[0] if row else 0

    def worker(self, setting: str) -> WorkerCommand:
        """Start a loop that takes so many at a time."""
        return WorkerCommand(module_command("bench.peers.drivers.raw_postgres", setting))


def work(batch: int) -> None:
    """Claim so many, do them, finish them; listen when there are none."""
    with psycopg.connect(os.environ["BENCH_URL"], autocommit=True) as connection:
        connection.execute("LISTEN job")
        while True:
            jobs = connection.execute(CLAIM, [batch]).fetchall()
            for _, given in jobs:
                hit(given["number"])
            if jobs:
                connection.execute(FINISH, [[key for key, _ in jobs]])
            else:
                for _ in connection.notifies(timeout=1, stop_after=1):
                    pass


def work_atomically() -> None:
    """Claim one, write its row and finish it, in one transaction each."""
    with psycopg.connect(os.environ["BENCH_URL"]) as connection:
        while True:
            with connection.transaction():
                job = connection.execute(CLAIM, [1]).fetchone()
                if job:
                    key, given = job
                    hit(given["number"])
                    connection.execute(WRITE, [given["number"]])
                    connection.execute(FINISH, [[key]])


def make_driver() -> Driver:
    """Connect."""
    return RawPostgres()


if __name__ == "__main__":
    work_atomically() if sys.argv[1] == "atomic" else work(int(sys.argv[1]))
