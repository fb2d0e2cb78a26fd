"""A TCP proxy on loopback that can be cut: what a network does to a database."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from contextlib import suppress


class Proxy:
    """Passes bytes on between whoever connects to ``port`` and a server; use it in a ``with`` block.

    ``cut()`` breaks every connection and refuses new ones, ``hush()`` lets nothing through and tells nobody,
    ``mend()`` undoes both for whoever connects from then on. ``hush_one(text)`` is for the first connection
    that sends this text: nothing passes there any more, in either direction, and all others go on.
    ``lose_answer()`` and ``lose_commit()`` break one connection at its COMMIT.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._lock = threading.RLock()
        self._is_cut = self._is_silent = self._is_over = False
        self.refused = 0
        self.hushed: socket.socket | None = None
        self._hush_text: bytes | None = None
        self.lost = 0  # answers to a COMMIT, or such statements
        self._clients: set[socket.socket] = set()
        self._marker: bytes | None = None
        self._marked: set[socket.socket] = set()
        self._answers_lost: set[socket.socket] = set()
        self._is_forwarded = self._is_cut_then = False
        self._thread = threading.Thread(target=self._pass_on, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        self._thread.join(5)
        self.cut()
        self._socket.close()
        self._selector.close()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            for one in list(self._peers):
                self._hang_up(one)

    def hush(self) -> None:
        self._is_silent = True

    def hush_one(self, text: bytes) -> None:
        self._hush_text = text

    def mend(self) -> None:
        with self._lock:
            self._is_cut = self._is_silent = False
            for one in list(self._peers):  # what was said to nobody is lost
                self._hang_up(one)

    def lose_answer(self, marker: bytes, cut: bool = False) -> None:
        """Break the connection that sends ``marker`` once the server has answered its next COMMIT."""
        self._marker, self._is_forwarded, self._is_cut_then = marker, True, cut

    def lose_commit(self, marker: bytes) -> None:
        """Break the connection that sends ``marker`` instead of forwarding its next COMMIT."""
        self._marker, self._is_forwarded, self._is_cut_then = marker, False, False

    @property
    def connections(self) -> int:
        return len(self._peers) // 2

    def _pass_on(self) -> None:
        while not self._is_over:
            for key, _ in self._selector.select(0.05):
                with self._lock, suppress(OSError):
                    if key.fileobj is self._socket:
                        self._accept()
                    elif not self._is_silent and key.fileobj in self._peers:
                        self._copy(key.fileobj)
            if self._is_silent:
                threading.Event().wait(0.05)

    def _accept(self) -> None:
        client, _ = self._socket.accept()
        if self._is_cut:
            self.refused += 1
            reset(client)
            return
        server = socket.create_connection(self._server, timeout=5)
        self._clients.add(client)
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _copy(self, one: socket.socket) -> None:
        try:
            data = one.recv(65_536)
            if self._is_hushed(one, data):
                return
            if data:
                if not self._is_lost(one, data):
                    self._peers[one].sendall(data)
                    return
                self._marker = None
                self.lost += 1
                if self._is_cut_then:
                    self.cut()
        except OSError:
            pass
        self._hang_up(one)

    def _is_lost(self, one: socket.socket, data: bytes) -> bool:
        """Tell whether this is what is to be lost: a COMMIT after the marker, or the answer to it."""
        if self._marker is None:
            return False
        if one not in self._clients:
            return one in self._answers_lost
        if self._marker in data:
            self._marked.add(one)
        elif one in self._marked and b"commit" in data.lower():
            self._answers_lost.add(self._peers[one])
            return not self._is_forwarded
        return False

    def _is_hushed(self, one: socket.socket, data: bytes) -> bool:
        """Tell whether this is kept from the other end, as is the end of the server's side."""
        if data and self._hush_text is not None and self._hush_text in data:
            self.hushed, self._hush_text = one, None
        if self.hushed not in (one, self._peers[one]) or (not data and one is self.hushed):
            return False
        if not data:
            self._selector.unregister(one)
        return True

    def _hang_up(self, one: socket.socket) -> None:
        for end in (one, self._peers.get(one)):
            if end is not None and self._peers.pop(end, None) is not None:
                with suppress(KeyError):
                    self._selector.unregister(end)
                reset(end)


def reset(end: socket.socket) -> None:
    """Close without a farewell, as a broken network does."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
