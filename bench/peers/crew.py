"""The processes of a contestant: its driver, and its workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.peers.contestant import Contestant
from bench.peers.driver import WorkerCommand
from bench.peers.scratch import scratch
from bench.peers.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
#: The longest a driver may take to answer, in seconds.
PATIENCE = 300.0
#: Seconds a worker has to leave after SIGTERM before it is killed.
FAREWELL = 3.0


class DriverFailed(Exception):
    """A driver could not do what it was asked to."""


class Crew:
    """A contestant at work. The driver is started, and the queue prepared, when it is first asked."""

    def __init__(self, contestant: Contestant, folder: Path) -> None:
        self.contestant = contestant
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.trace = Trace(folder)
        self.url = ""
        self._commands: dict[str, WorkerCommand] = {}
        self._exits = ExitStack()
        self._driver: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        self.dismiss()
        self._exits.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Let the driver do something; return its result. Raises DriverFailed."""
        return self.timed(method, *arguments)[0]

    def timed(self, method: str, *arguments: Any) -> tuple[Any, float]:
        """Let the driver do something; return its result, and the seconds it took there."""
        if self._connection is None:
            self._start()
        return self._call(method, *arguments)

    def _start(self) -> None:
        if not self.url:
            self.url = self._exits.enter_context(scratch(self.contestant, self.folder))
            prepared = False
        else:
            prepared = True
        ours, theirs = Pipe()
        with theirs:
            module = [self.contestant.driver, *self.contestant.arguments]
            command = [sys.executable, "-m", "bench.peers.driver", str(theirs.fileno()), *module]
            self._driver = self._open(command, {}, pass_fds=[theirs.fileno()])
        self._connection = ours
        if not prepared:
            self._call("prepare")

    def _call(self, method: str, *arguments: Any) -> tuple[Any, float]:
        assert self._connection
        try:
            self._connection.send((method, arguments))
            if not self._connection.poll(PATIENCE):
                raise DriverFailed(f"{method} took more than {PATIENCE:.0f} s")
            failure, result, seconds = self._connection.recv()
        except (OSError, EOFError):
            self.dismiss()
            raise DriverFailed(f"its driver died in {method}: {self.last_words()}") from None
        except DriverFailed:
            self.dismiss()
            raise
        if failure:
            raise DriverFailed(f"{method}: {failure}")
        return result, seconds

    @contextmanager
    def workers(self, setting: str, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Start so many workers; they are ended, by their process groups, with the block."""
        command = self.command(setting)
        started: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(count):
                started.append(self._open(command.arguments, command.env))
            yield started
        finally:
            for sent in (signal.SIGTERM, signal.SIGKILL):
                for process in started:
                    end(process, sent)

    def processes(self, setting: str) -> int:
        """Return how many processes of one worker take jobs."""
        return self.command(setting).processes

    def command(self, setting: str) -> WorkerCommand:
        """Return how a worker is started."""
        if setting not in self._commands:
            self._commands[setting] = self.ask("worker", setting)
        return self._commands[setting]

    def dismiss(self) -> None:
        """End the driver; the next question starts another one."""
        if self._connection:
            self._connection.close()
        if self._driver:
            with suppress(subprocess.TimeoutExpired):
                self._driver.wait(FAREWELL)
            end(self._driver, signal.SIGKILL)
        self._driver = self._connection = None

    def last_words(self) -> str:
        """Return the last line of the log."""
        lines = (self.folder / "log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _open(self, command: list[str], env: dict[str, str], **options: Any) -> subprocess.Popen[bytes]:
        mine = {
            "BENCH_STATE": str(self.folder),
            "BENCH_URL": self.url,
            "DATABASE_URL": self.url,
            "PYTHONPATH": str(ROOT),
        }
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **mine, **self.contestant.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **options,
            )


def end(process: subprocess.Popen[bytes], sent: signal.Signals) -> None:
    """Signal the process group of a process that this one has started, and wait a while for the process."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, sent)
    with suppress(subprocess.TimeoutExpired):
        process.wait(FAREWELL)
