"""How a child process of a supervisor starts, and how the two hear of each other."""

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
from typing import NamedTuple, Protocol

from django.db import connections
from django.utils.autoreload import get_child_arguments

from django_ayework.rules.health import Phase, Signs
from django_ayework.worker import bounds
from django_ayework.worker.serving import leave, signals_held_back
from django_ayework.worker.worker import Worker

# --- line ---
# The line between a supervisor and a child: signs of life go up, and each learns of the other's end.

#: Seconds to wait for a supervisor that does not listen.
PATIENCE = 1.0


def line() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a line: the supervisor's, which never blocks, and the child's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


def send(end: socket.socket, signs: Signs) -> None:
    """Tell the supervisor how a worker is; one that does not listen misses it."""
    with suppress(OSError):
        end.sendall(json.dumps(asdict(signs)).encode() + b"\n")


class Listener:
    """The supervisor's end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._rest = b""
        self.has_ended = False

    def fileno(self) -> int:
        """Return what to wait for."""
        return self._end.fileno()

    def latest(self) -> Signs | None:
        """Read all that has come; return the latest signs, if there are new ones."""
        latest = None
        for text in self._lines():
            latest = signs_from(text) or latest
        return latest

    def close(self) -> None:
        """Hang up: the child takes it that its supervisor has gone."""
        self._end.close()

    def _lines(self) -> list[bytes]:
        with suppress(BlockingIOError):
            while not self.has_ended:
                try:
                    received = self._end.recv(65_536)
                except ConnectionError:
                    received = b""
                self._rest += received
                self.has_ended = not received
        *lines, self._rest = self._rest.split(b"\n")
        return lines


def signs_from(text: bytes) -> Signs | None:
    """Return signs as they were sent; None for what was cut short."""
    try:
        told = json.loads(text)
        return Signs(**{**told, "phase": Phase(told["phase"]), "dead": tuple(told["dead"])})
    except (ValueError, TypeError, KeyError):
        return None


# --- births ---
# How a child comes into being: by a fork, or by running the same command again.

#: How a child that runs the command again learns whose it is: its end of the line, and its place.
INHERITANCE = "AYEWORK_SUPERVISED"

#: A child's life: given its end of the line and its place, it returns the exit status.
Life = Callable[[socket.socket, int], int]


class Closable(Protocol):
    """What a child must not keep of its parent."""

    def close(self) -> None:
        """Close it."""


class StartedChild(NamedTuple):
    """A new child, as its parent sees it."""

    pid: int
    line: Listener


def start_child(place: int, life: Life, parents: Sequence[Closable]) -> StartedChild:
    """Start a child; what is its parent's alone, it closes. Raises OSError when the system has no room."""
    forget_connections()
    ours, theirs = line()
    try:
        with theirs, signals_held_back():
            pid = forked(place, life, theirs, [ours, *parents]) if forks() else spawned(place, theirs)
    except BaseException:
        ours.close()
        raise
    return StartedChild(pid, Listener(ours))


def forks() -> bool:
    """Tell whether a fork is safe: other threads would be cut off in the child, perhaps holding a lock.

    On macOS the system's own libraries start such threads.
    """
    return hasattr(os, "fork") and sys.platform != "darwin" and threading.active_count() == 1


def forget_connections() -> None:
    """Close connections and pools that were opened before: parent and child would talk on one."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict.get("OPTIONS", {}).get("pool"):
            connection.close_pool()  # type: ignore[attr-defined]  # PostgreSQL's


def forked(place: int, life: Life, theirs: socket.socket, parents: Sequence[Closable]) -> int:
    """Fork; in the child, live, and end."""
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
        status = life(theirs, place)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        leave(status)
    raise AssertionError("unreachable")


def spawned(place: int, theirs: socket.socket) -> int:
    """Run the command that this process runs once more, as a child."""
    theirs.set_inheritable(True)
    arguments = [str(argument) for argument in get_child_arguments()]
    environment = {**os.environ, INHERITANCE: f"{theirs.fileno()},{place}"}
    return os.posix_spawn(arguments[0], arguments, environment, setsigmask=[])


def inherited() -> tuple[socket.socket, int] | None:
    """Return what this process was given if it is such a child: its end of the line, and its place."""
    told = os.environ.pop(INHERITANCE, None)
    if told is None:
        return None
    descriptor, place = map(int, told.split(","))
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    return end, place


# --- tie ---
# What ties a worker to its supervisor, in the child.

logger = logging.getLogger("django_ayework")


class Tie:
    """Tells the supervisor how the worker is, and stops the worker in order when the supervisor has gone."""

    def __init__(self, end: socket.socket, worker: Worker) -> None:
        #: Whether the supervisor is there.
        self.holds = True
        self._end = end
        self._worker = worker
        self._lock = threading.Lock()
        end.settimeout(bounds.BEAT)
        worker.vitals.listeners.append(self.tell)
        threading.Thread(target=self._hold, name="ayework-tie", daemon=True).start()

    def tell(self) -> None:
        """Tell how the worker is."""
        with self._lock:
            send(self._end, self._worker.vitals.signs())

    def _hold(self) -> None:
        """Tell again and again, until the other end of the line is closed; nothing is ever said there."""
        while self.holds:
            self.tell()
            try:
                self.holds = bool(self._end.recv(1))
            except TimeoutError:
                pass
            except OSError:
                self.holds = False
        logger.warning("The supervisor of worker %s has gone; the worker stops.", self._worker.id)
        self._worker.request_stop()
