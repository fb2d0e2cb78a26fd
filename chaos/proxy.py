"""A TCP proxy on loopback between workers and the database: it can cut, delay, and fall silent."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time

#: Bytes that are read at once.
PIECE = 65_536


class Pair:
    """A client's connection, and the one to the server on its behalf; a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._ends = (client, server)
        self._is_silent = threading.Event()
        for one, other in (self._ends, self._ends[::-1]):
            threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def silence(self) -> None:
        """Swallow what comes from either side from now on. TCP stays well, and no answer ever comes."""
        self._is_silent.set()

    @property
    def is_silent(self) -> bool:
        """Whether nothing passes any more."""
        return self._is_silent.is_set()

    def cut(self) -> None:
        """Reset both connections."""
        for one in self._ends:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(PIECE):
                if self._proxy.delay:
                    time.sleep(random.uniform(0, self._proxy.delay))
                if not self._is_silent.is_set():
                    other.sendall(data)
        except OSError:
            pass
        # A silent connection stays open on the client's side: the client must not learn that it is cut.
        if not self._is_silent.is_set() or one is self._ends[0]:
            self.cut()
            self._proxy.forget(self)


class Proxy:
    """Passes bytes on between ``port`` and a server; use it in a ``with`` block."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._pairs: set[Pair] = set()
        self._lock = threading.Lock()
        self._is_over = False
        #: Whether new connections are refused.
        self.refuses = False
        #: Each piece waits up to so many seconds.
        self.delay = 0.0

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.cut()

    def pairs(self) -> list[Pair]:
        """Return the connections that are open."""
        with self._lock:
            return list(self._pairs)

    def cut(self) -> None:
        """Reset every connection."""
        for pair in self.pairs():
            pair.cut()

    def forget(self, pair: Pair) -> None:
        """Drop a connection that has ended."""
        with self._lock:
            self._pairs.discard(pair)

    def _accept(self) -> None:
        while not self._is_over:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            try:
                if self.refuses:
                    raise ConnectionRefusedError
                server = socket.create_connection(("127.0.0.1", self._server_port), timeout=5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._pairs.add(Pair(self, client, server))
