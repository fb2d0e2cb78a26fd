"""The line between a supervisor and a child: signs of life go up, and each learns of the other's end."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from dataclasses import asdict

from django_ayework.rules.health import Phase, Signs

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
