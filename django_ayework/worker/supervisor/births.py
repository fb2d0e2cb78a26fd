"""How a child comes into being: by a fork, or by running the same command again."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from django.db import connections
from django.utils.autoreload import get_child_arguments

from django_ayework.worker.serving import leave, signals_held_back
from django_ayework.worker.supervisor.line import Listener, line

#: How a child that runs the command again learns whose it is: its end of the line, and its place.
INHERITANCE = "AYEWORK_SUPERVISED"

#: A child's life: given its end of the line and its place, it returns the exit status.
Life = Callable[[socket.socket, int], int]


class Closable(Protocol):
    """What a child must not keep of its parent."""

    def close(self) -> None:
        """Close it."""


class Born(NamedTuple):
    """A new child, as its parent sees it."""

    pid: int
    line: Listener


def give_birth(place: int, life: Life, parents: Sequence[Closable]) -> Born:
    """Start a child; what is its parent's alone, it closes. Raises OSError when the system has no room."""
    forget_connections()
    ours, theirs = line()
    try:
        with theirs, signals_held_back():
            pid = forked(place, life, theirs, [ours, *parents]) if forks() else spawned(place, theirs)
    except BaseException:
        ours.close()
        raise
    return Born(pid, Listener(ours))


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
