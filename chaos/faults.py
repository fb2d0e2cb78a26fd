"""The faults. Each is applied again and again, at moments that the seed decides, while the load runs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from chaos.redis import ADDRESS, RedisServer
from chaos.servers import Server, SQLite
from chaos.settings import LEASE, SQLITE_TIMEOUT

if TYPE_CHECKING:
    from chaos.processes import Started
    from chaos.run import Run

FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"


class Fault:
    """One kind of fault. A subclass says what it does, and what it explains."""

    name: ClassVar[str]
    title: ClassVar[str]
    #: Whether workers reach the database by way of the proxy.
    is_proxied: ClassVar[bool] = False
    #: Whether an error of the database in a log is explained by it.
    is_outage: ClassVar[bool] = False
    #: Whether a lease may lapse although the process lives.
    loses_leases: ClassVar[bool] = False
    #: Kinds of calls that are made besides the usual ones.
    extras: ClassVar[Sequence[str]] = ()
    worker_options: ClassVar[Sequence[str]] = ()
    #: Whether the project misbehaves around the handlers of the workers, too.
    is_troubled: ClassVar[bool] = False
    #: Seconds between two applications, at most.
    pause: ClassVar[float] = 1.5
    is_possible_on: ClassVar[Sequence[str]] = ("sqlite", "postgres", "mariadb")

    def __init__(self, run: Run, dice: random.Random) -> None:
        self.run, self.dice = run, dice

    @classmethod
    def hindrance(cls, server: Server) -> str:
        """Return why it cannot be applied here, or nothing."""
        return ""

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        """Prepare what it needs for a whole run, and clean up."""
        yield

    def apply(self) -> None:
        """Apply it once, and end it."""
        raise NotImplementedError

    def apply_noted(self) -> None:
        """Apply it once, and note its beginning and its end."""
        self.run.ledger.write("fault begins", fault=self.name)
        try:
            self.apply()
        finally:
            self.run.ledger.write("fault ends", fault=self.name)

    @contextlib.contextmanager
    def hindered(self) -> Iterator[None]:
        """Note an error that keeps the fault from being applied, and go on."""
        try:
            yield
        except Exception as error:
            self.run.ledger.write("hindered", fault=self.name, error=f"{type(error).__name__}: {error}"[:300])

    def a_worker(self) -> Started | None:
        """Return one of the workers."""
        alive = self.run.fleet.alive()
        return self.dice.choice(alive) if alive else None


class Nothing(Fault):
    """For comparison."""

    name, title = "none", "no fault"

    def apply_noted(self) -> None:
        """Let the load run."""
        self.run.sleep(1.0)


class Kill(Fault):
    """The process is gone from one moment to the next."""

    name, title = "kill", "a worker is killed (SIGKILL)"

    def apply(self) -> None:
        """Kill a worker; the fleet replaces it."""
        if worker := self.a_worker():
            self.run.fleet.send(worker, signal.SIGKILL)


class Stop(Fault):
    """The process stands still, as on a host that sleeps, and does not know it."""

    name, title = "stop", "a worker is suspended beyond its lease (SIGSTOP, SIGCONT)"
    is_outage = True  # it may hold locks meanwhile

    def apply(self) -> None:
        """Stop one or two of the workers for longer than their leases, mostly."""
        alive = self.run.fleet.alive()
        stopped = self.dice.sample(alive, min(len(alive), self.dice.randint(1, 2)))
        for worker in stopped:
            self.run.fleet.send(worker, signal.SIGSTOP)
        self.run.sleep(self.dice.choice([LEASE * 0.5, LEASE * 1.3, LEASE * 2.0]))
        for worker in stopped:
            self.run.fleet.send(worker, signal.SIGCONT)


class Restart(Fault):
    """What was not committed is gone, and so are all connections."""

    name, title = "restart", "the database server crashes and starts again"
    is_outage = True
    pause = 3.0
    is_possible_on = ("postgres", "mariadb")

    def apply(self) -> None:
        """Restart it at once."""
        self.run.server.restart_at_once()


class Backends(Fault):
    """Single connections break, in the middle of statements and of transactions."""

    name, title = "backends", "connections are ended by the server"
    is_outage = True
    pause = 0.5
    is_possible_on = ("postgres", "mariadb")

    def apply(self) -> None:
        """End some connections, or all."""
        share = self.dice.choice([0.2, 0.5, 1.0])
        self.run.server.kill_backends(lambda ids: self.dice.sample(ids, round(len(ids) * share)))


class Cut(Fault):
    """The network is gone for a while, and says so."""

    name, title = "cut", "the network between workers and database is cut"
    is_proxied = is_outage = True
    is_possible_on = ("postgres", "mariadb")

    def apply(self) -> None:
        """Reset all connections; refuse new ones for less than a lease, or for longer."""
        proxy = self.run.proxy
        assert proxy
        proxy.refuses = True
        proxy.cut()
        self.run.sleep(self.dice.choice([0.1, 1.0, LEASE * 1.3]))
        proxy.refuses = False


class Delay(Fault):
    """The network is slow."""

    name, title = "delay", "the network between workers and database is slow"
    is_proxied = is_outage = loses_leases = True
    is_possible_on = ("postgres", "mariadb")

    def apply(self) -> None:
        """Hold back each packet."""
        assert self.run.proxy
        self.run.proxy.delay = self.dice.choice([0.02, 0.1, 0.4])
        self.run.sleep(self.dice.uniform(1.0, 3.0))
        self.run.proxy.delay = 0.0


class Silence(Fault):
    """A pooler hangs, or a firewall has forgotten the connection: TCP is well, and no answer ever comes."""

    name, title = "silence", "connections of workers never answer again"
    is_proxied = is_outage = loses_leases = True
    is_possible_on = ("postgres", "mariadb")

    def apply(self) -> None:
        """Silence some connections, or all that are open. New ones are well."""
        assert self.run.proxy
        pairs = self.run.proxy.pairs()
        share = self.dice.choice([0.2, 0.5, 1.0])
        for pair in self.dice.sample(pairs, round(len(pairs) * share)):
            pair.silence()


class Connections(Fault):
    """The server takes no more connections."""

    name, title = "connections", "connections end, and all others are taken"
    is_outage = loses_leases = True
    is_possible_on = ("postgres", "mariadb")

    def apply(self) -> None:
        """End some connections, and take whatever connection is free for some seconds."""
        taken: list[Any] = []
        self.run.server.kill_backends(lambda ids: self.dice.sample(ids, len(ids) // 3))
        end = time.monotonic() + self.dice.uniform(1.0, 3.0)
        try:
            while time.monotonic() < end and not self.run.is_told_to_end:
                self.take_all(taken)
                time.sleep(0.05)
        finally:
            for connection in taken:
                with contextlib.suppress(Exception):
                    connection.close()

    def take_all(self, taken: list[Any]) -> None:
        """Take connections until one is refused."""
        with contextlib.suppress(Exception):
            while True:
                taken.append(self.run.server.connect_as_user())


class Clock(Fault):
    """A host's clock is wrong."""

    name, title = "clock", "the clock of one worker is an hour ahead, of another an hour behind (libfaketime)"
    pause = 3.0
    # On SQLite the clock of the process is the database's: there is one host, which has one clock.
    is_possible_on = ("postgres", "mariadb")

    def __init__(self, run: Run, dice: random.Random) -> None:
        super().__init__(run, dice)
        self._wrong: list[Started] = []

    @classmethod
    def hindrance(cls, server: Server) -> str:
        """Tell whether libfaketime is missing."""
        return "" if faketime() else "libfaketime is not installed (on Debian: apt-get install faketime)"

    def apply(self) -> None:
        """Replace the workers whose clocks were wrong by others."""
        for worker in self._wrong:
            self.run.fleet.retire(worker)
        # The monotonic clock is left alone: no real host's jumps.
        mine = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", "LD_PRELOAD": faketime()}
        options = ["--concurrency", "2"]
        self._wrong = [self.run.fleet.start(options, FAKETIME=offset, **mine) for offset in ("+1h", "-1h")]
        for worker in self._wrong:
            self.run.await_worker(worker.pid)
        self.run.sleep(self.dice.uniform(1.0, 3.0))


class Disk(Fault):
    """The disk of the file is full for a while. The file is on a small tmpfs meanwhile."""

    name, title = "disk", "the disk is full"
    is_outage = True
    is_possible_on = ("sqlite",)
    size: ClassVar[str] = "48m"

    @classmethod
    def hindrance(cls, server: Server) -> str:
        """Only root may mount."""
        return "" if os.geteuid() == 0 else "the small disk of this fault can be mounted by root only"

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        """Mount a small disk, and keep the file there."""
        server = self.run.server
        assert isinstance(server, SQLite)
        place = server.folder / "disk"
        place.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", place], check=True)
        server.place = place
        try:
            yield
        finally:
            server.place = server.folder
            subprocess.run(["umount", "-l", place], check=True)

    def apply(self) -> None:
        """Fill the disk, to the last byte or nearly."""
        assert isinstance(self.run.server, SQLite)
        filler = self.run.server.place / "filler"
        try:
            with filler.open("wb", buffering=0) as out, contextlib.suppress(OSError):
                while True:
                    out.write(b"x" * 65_536)
            with filler.open("ab", buffering=0) as out, contextlib.suppress(OSError):
                while True:
                    out.write(b"x" * 512)
            self.run.sleep(self.dice.uniform(0.5, 3.0))
        finally:
            filler.unlink()


class OfOthers(Fault):
    """Transactions of others hold locks, each for a while."""

    name = title = ""
    #: Seconds for which one of them may hold its locks for once.
    longest: ClassVar[float]

    def apply(self) -> None:
        """Let some transactions begin at once."""
        held = [self.dice.uniform(0.1, 3.0) for _ in range(self.dice.randint(1, 4))]
        if self.dice.random() < 0.5:
            held.append(self.longest)
        seeds = [self.dice.random() for _ in held]
        threads = [threading.Thread(target=self.guarded, args=each) for each in zip(held, seeds, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def guarded(self, seconds: float, seed: float) -> None:
        """Hold locks, or note why that could not be."""
        with (
            self.hindered(),
            contextlib.closing(self.run.server.connect_as_user()) as connection,
            contextlib.closing(connection.cursor()) as cursor,
        ):
            self.lock(cursor, random.Random(seed))
            self.run.sleep(seconds)
            cursor.execute("ROLLBACK")

    def lock(self, cursor: Any, dice: random.Random) -> None:
        """Begin a transaction, and take the locks."""
        raise NotImplementedError


class Writers(OfOthers):
    """Others hold the only write lock there is."""

    name, title = "writers", "other processes hold the write lock"
    is_outage = True
    is_possible_on = ("sqlite",)
    longest = SQLITE_TIMEOUT + 1.5

    def lock(self, cursor: Any, dice: random.Random) -> None:
        """Write a row."""
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("INSERT INTO chaos_effect (work, kind) VALUES ('', 'noise')")


class Locks(OfOthers):
    """Others hold rows that the engine needs, such as those of an operator who looks at them in a shell."""

    name, title = "locks", "other transactions lock rows of the queue"
    is_outage = True  # statements of handlers wait for the rows, and the driver ends one that takes too long
    is_possible_on = ("postgres", "mariadb")
    longest = LEASE * 1.5
    #: Tables, each with a key.
    tables: ClassVar[Sequence[tuple[str, str]]] = (
        ("work", "id"),
        ("work", "id"),
        ("group", "id"),
        ("waiter", "work_id"),
        ("workcontrol", "id"),
        ("workerprocess", "id"),
        ("throughput", "id"),
    )

    def lock(self, cursor: Any, dice: random.Random) -> None:
        """Lock the newest rows of a table, some or many."""
        table, key = dice.choice(self.tables)
        cursor.execute("BEGIN")
        cursor.execute(
            f"SELECT {key} FROM django_ayework_{table} ORDER BY {key} DESC "
            f"LIMIT {dice.choice([1, 20, 1000])} FOR UPDATE SKIP LOCKED"
        )


class Terms(Fault):
    """Deployments, one after the other."""

    name, title = "terms", "workers are stopped and replaced, again and again (SIGTERM)"
    pause = 0.5

    def apply(self) -> None:
        """Tell a worker to stop, sometimes all."""
        alive = self.run.fleet.alive()
        if not alive:
            return
        chosen = alive if self.dice.random() < 0.2 else [self.dice.choice(alive)]
        for worker in chosen:
            self.run.fleet.send(worker, signal.SIGTERM)


class RedisQueue(Fault):
    """The server that delivers the ids of works is gone, or has forgotten them."""

    name, title = "redis-queue", "ids are delivered by Redis, which is killed or flushed"
    is_outage = True

    @classmethod
    def hindrance(cls, server: Server) -> str:
        """Tell whether there can be no Redis server."""
        return RedisServer.hindrance()

    @contextlib.contextmanager
    def surroundings(self) -> Iterator[None]:
        """Run a Redis server, and give its address to the processes of the run."""
        self._redis = RedisServer()
        self._redis.start()
        os.environ[ADDRESS] = self._redis.url
        try:
            yield
        finally:
            del os.environ[ADDRESS]
            self._redis.kill()

    def apply(self) -> None:
        """Flush it, or kill it and start it again a while later."""
        if self.dice.random() < 0.5:
            self._redis.flush()
            return
        self._redis.kill()
        self.run.sleep(self.dice.uniform(0.1, 3.0))
        self._redis.start()


class OfHandlers(Fault):
    """The load is the fault."""

    name = title = ""
    pause = 0.5

    def apply(self) -> None:
        """Let it run."""
        self.run.sleep(1.0)


class Hang(OfHandlers):
    """Handlers that outlast their timeout."""

    name, title = "hang", "handlers hang beyond their timeout and the lease"
    extras = ("hangs",)


class Exit(OfHandlers):
    """Handlers that end the process."""

    name, title = "exit", "handlers end the process (os._exit)"
    extras = ("exits",)


class Panic(OfHandlers):
    """Handlers that raise what is no ``Exception``."""

    name, title = "panic", "handlers raise a BaseException"
    extras = ("panics",)


class Trouble(OfHandlers):
    """Receivers, hooks, middlewares and handlers of the log that raise, wait, and misuse the connection."""

    name, title = "trouble", "receivers, hooks and middlewares raise, wait, and leave transactions open"
    is_outage = True  # handlers find the connection broken, or a transaction that has failed
    is_troubled = True


class Memory(OfHandlers):
    """Handlers that take memory, under ``--max-memory``."""

    name, title = "memory", "handlers allocate memory, and workers are replaced (--max-memory)"
    extras = ("eats",)
    worker_options = ("--max-memory", "110")


class Migrate(Fault):
    """A later version's migration beside workers of this one."""

    name, title = "migrate", "columns are added and migrations run beside workers"
    is_outage = True  # statements wait for the table's lock
    pause = 0.5

    def apply(self) -> None:
        """Add a column to the table of works, and one to the project's own; migrate again."""
        for table in ("django_ayework_work", "chaos_effect"):
            with self.hindered():  # a lock may not be had in time
                self.run.server.add_column(table)
        with self.hindered():
            self.run.server.migrate()


class Mixed(Fault):
    """All of them, in a random order, up to two at a time."""

    name, title = "mixed", "two of these at a time, without memory, disk and Redis"
    is_proxied = is_outage = loses_leases = True
    extras = ("exits", "hangs", "panics")

    def __init__(self, run: Run, dice: random.Random) -> None:
        super().__init__(run, dice)
        left_out = (Nothing, Mixed, OfHandlers, Disk, RedisQueue)
        kinds = [kind for kind in possible_on(run.server) if not issubclass(kind, left_out)]
        self._faults = [kind(run, dice) for kind in kinds if not kind.hindrance(run.server)]

    def apply(self) -> None:
        """Apply two."""
        threads = [
            threading.Thread(target=self.guarded, args=[one]) for one in self.dice.sample(self._faults, 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def guarded(self, fault: Fault) -> None:
        """Apply one, which may be kept from it by the other."""
        with self.hindered():
            fault.apply_noted()


FAULTS: dict[str, type[Fault]] = {
    kind.name: kind
    for kind in (
        Nothing,
        Kill,
        Stop,
        Terms,
        Hang,
        Exit,
        Panic,
        Trouble,
        Memory,
        Clock,
        Migrate,
        Restart,
        Backends,
        Connections,
        Cut,
        Delay,
        Silence,
        Disk,
        Writers,
        Locks,
        RedisQueue,
        Mixed,
    )
}


def possible_on(server: Server) -> list[type[Fault]]:
    """Return the faults that there are on a database."""
    return [kind for kind in FAULTS.values() if server.name in kind.is_possible_on]


def faketime() -> str:
    """Return where libfaketime is, or nothing."""
    found = sorted(Path("/").glob(FAKETIME.lstrip("/")))
    return str(found[0]) if found and sys.platform == "linux" else ""
