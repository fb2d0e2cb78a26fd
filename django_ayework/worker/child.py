"""How a child process of a supervisor starts, and how the two communicate.

They share a heartbeat pipe: the child writes how its worker is, and each end learns of the other's end.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Protocol

from django.db import connections

from django_ayework.compat import close_pool, this_command
from django_ayework.rules.health import Phase, Signs
from django_ayework.worker import bounds
from django_ayework.worker.process import leave, signals_held_back
from django_ayework.worker.worker import Worker

logger = logging.getLogger("django_ayework")

# --- the heartbeat pipe -----------------------------------------------------------------------------------


def heartbeat_pipe() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a pipe: the supervisor's, which never blocks, and the child's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


def send_signs(end: socket.socket, signs: Signs) -> None:
    """Write how a worker is; a supervisor that does not read misses it."""
    with suppress(OSError):
        end.sendall(json.dumps(asdict(signs)).encode() + b"\n")


def signs_from(text: bytes) -> Signs | None:
    """Return signs as they were sent; None for a text that was cut short."""
    try:
        received = json.loads(text)
        return Signs(**{**received, "phase": Phase(received["phase"]), "dead": tuple(received["dead"])})
    except (ValueError, TypeError, KeyError):
        return None


class PipeReader:
    """The supervisor's end of a heartbeat pipe."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._rest = b""
        self.has_ended = False

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._end.fileno()

    def latest(self) -> Signs | None:
        """Read all that was sent; return the latest signs, if there are new ones."""
        with suppress(BlockingIOError):
            while not self.has_ended:
                try:
                    received = self._end.recv(65_536)
                except ConnectionError:
                    received = b""
                self._rest += received
                self.has_ended = not received
        *lines, self._rest = self._rest.split(b"\n")
        return next(filter(None, map(signs_from, reversed(lines))), None)

    def close(self) -> None:
        """Close the end: to the child its supervisor has gone."""
        self._end.close()


class SupervisorLink:
    """Sends the supervisor how a worker is, and stops the worker in order when the supervisor has gone."""

    def __init__(self, end: socket.socket, worker: Worker) -> None:
        #: Whether the supervisor is there.
        self.holds = True
        self._end = end
        self._worker = worker
        self._lock = threading.Lock()
        end.settimeout(bounds.BEAT)
        worker.health.listeners.append(self.send)
        threading.Thread(target=self._serve, name="ayework-supervised", daemon=True).start()

    def send(self) -> None:
        """Send how the worker is."""
        with self._lock:
            send_signs(self._end, self._worker.health.signs())

    def _serve(self) -> None:
        """Send again and again, until the other end is closed, which never sends anything."""
        while self.holds:
            self.send()
            try:
                self.holds = bool(self._end.recv(1))
            except TimeoutError:
                pass
            except OSError:
                self.holds = False
        logger.warning("The supervisor of worker %s has gone; the worker stops.", self._worker.id)
        self._worker.request_stop()


# --- starting ---------------------------------------------------------------------------------------------

#: By this variable a child that runs the command again learns its end of the pipe, and its number.
SUPERVISED = "AYEWORK_SUPERVISED"

#: What a child does: given its end of the pipe and its number, it returns the exit status.
ChildMain = Callable[[socket.socket, int], int]


class Closable(Protocol):
    """Something of its parent's that a child must close."""

    def close(self) -> None: ...


def start_child(number: int, main: ChildMain, parents: Sequence[Closable]) -> tuple[int, PipeReader]:
    """Start a child, which closes what is its parent's alone; return its process id and the pipe.

    Raises OSError when the system has no room for another process.
    """
    close_connections()
    ours, theirs = heartbeat_pipe()
    try:
        with theirs, signals_held_back():
            if can_fork():
                pid = fork_child(number, main, theirs, [ours, *parents])
            else:
                pid = spawn_child(number, theirs)
    except BaseException:
        ours.close()
        raise
    return pid, PipeReader(ours)


def can_fork() -> bool:
    """Tell whether a fork is safe: other threads would be cut off in the child, perhaps holding a lock.

    On macOS the system's own libraries start such threads.
    """
    return hasattr(os, "fork") and sys.platform != "darwin" and threading.active_count() == 1


def close_connections() -> None:
    """Close connections and pools that were opened before: parent and child would use the same ones."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        close_pool(connection)


def fork_child(number: int, main: ChildMain, theirs: socket.socket, parents: Sequence[Closable]) -> int:
    """Fork; in the child, work, and end."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for thing in parents:
            thing.close()
        status = main(theirs, number)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        leave(status)
    raise AssertionError("unreachable")


def spawn_child(number: int, theirs: socket.socket) -> int:
    """Run the command that this process runs once more, as a child."""
    theirs.set_inheritable(True)
    arguments = this_command()
    environment = {**os.environ, SUPERVISED: f"{theirs.fileno()},{number}"}
    return os.posix_spawn(arguments[0], arguments, environment, setsigmask=[])


def inherited() -> tuple[socket.socket, int] | None:
    """Return the end of the pipe and the number of a child that runs the command again; None for others."""
    value = os.environ.pop(SUPERVISED, None)
    if value is None:
        return None
    descriptor, number = map(int, value.split(","))
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    return end, number
