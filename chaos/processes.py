"""Workers and enqueuers: real processes. The harness starts, replaces and ends them, by their ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.ledger import Ledger
from chaos.servers import ROOT

#: Slots of a worker.
CONCURRENCY = 4
#: Seconds that a worker has to stop: SHUTDOWN_GRACE, and what it may take after that.
FAREWELL = 20.0


@dataclass
class Started:
    """A worker: its process, the latest of those that replaced one another, and how to start another one."""

    process: subprocess.Popen[bytes]
    options: Sequence[str]
    env: Mapping[str, str]

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None


@dataclass
class Fleet:
    """The worker processes of a run. A thread replaces those that end, as a service manager does."""

    folder: Path
    ledger: Ledger
    env: dict[str, str]
    workers: list[Started] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _is_over: threading.Event = field(default_factory=threading.Event)
    _count: int = 0

    def watch(self) -> None:
        """Begin to replace workers that end."""
        threading.Thread(target=self._replace_all, name="fleet", daemon=True).start()

    def start(self, options: Sequence[str] = (), **env: str) -> Started:
        """Start a worker."""
        with self._lock:
            worker = Started(self._run(options, env), options, env)
            self.workers.append(worker)
            return worker

    def alive(self) -> list[Started]:
        """Return the workers that have not ended."""
        with self._lock:
            return [one for one in self.workers if one.is_alive]

    def retire(self, worker: Started) -> None:
        """Stop a worker in order, and replace it by none."""
        with self._lock:
            self.workers.remove(worker)
        self.send(worker, signal.SIGTERM)
        self._await_end(worker, FAREWELL)

    def send(self, worker: Started, number: signal.Signals) -> None:
        """Send a signal to a worker, if it has not ended."""
        if worker.is_alive:
            self.ledger.write("signal", worker_pid=worker.pid, signal=number.name)
            worker.process.send_signal(number)

    def stop(self) -> None:
        """Stop all workers in order; kill those that do not end in time."""
        self._is_over.set()
        with self._lock:
            stopping = list(self.workers)
        for worker in stopping:
            self.send(worker, signal.SIGTERM)
        end_at = time.monotonic() + FAREWELL
        for worker in stopping:
            self._await_end(worker, max(0.1, end_at - time.monotonic()))

    def _await_end(self, worker: Started, seconds: float) -> None:
        try:
            worker.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.ledger.write("did not stop", worker_pid=worker.pid)
            self.send(worker, signal.SIGKILL)
            worker.process.wait()
        self.ledger.write("worker ended", worker_pid=worker.pid, status=worker.process.returncode)

    def _replace_all(self) -> None:
        while not self._is_over.wait(0.1):
            with self._lock:
                for worker in self.workers:
                    if not worker.is_alive and not self._is_over.is_set():
                        status = worker.process.returncode
                        self.ledger.write("worker ended", worker_pid=worker.pid, status=status)
                        worker.process = self._run(worker.options, worker.env)

    def _run(self, options: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self._count += 1
        with (self.folder / f"worker-{self._count}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "django", "ayework_worker", *options],
                cwd=ROOT,
                env=self.env | dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.ledger.write("worker started", worker_pid=process.pid)
        return process


@dataclass
class Enqueuers:
    """The processes that enqueue, or make other calls. They end when their standard input does."""

    folder: Path
    ledger: Ledger
    env: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, count: int, seed: str, module: str = "chaos.enqueuer") -> None:
        """Start so many of a module, each with dice of its own."""
        for number in range(count):
            env = self.env | {"CHAOS_ROLE": "enqueuer", "CHAOS_SEED": f"{seed}-{number}"}
            with (self.folder / f"enqueuer-{number}.log").open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", module],
                    cwd=ROOT,
                    env=env,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.processes.append(process)

    def stop(self) -> None:
        """Let them end after the call they are in; kill those that do not."""
        for process in self.processes:
            if process.stdin:
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(FAREWELL)
            except subprocess.TimeoutExpired:
                self.ledger.write("enqueuer killed", enqueuer_pid=process.pid)
                process.kill()
                process.wait()


def environment(url: str, folder: Path) -> dict[str, str]:
    """Return the environment of the processes of a run."""
    mine = {
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "chaos.settings",
        "CHAOS_RUN": str(folder),
        "CHAOS_ROLE": "worker",
        "PYTHONPATH": str(ROOT),
    }
    return dict(os.environ) | mine
