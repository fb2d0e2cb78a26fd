"""A small HTTP server that tells how a worker is: ``/live`` and ``/ready``."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict

from django_ayework.rules.health import Health, Signs, health_of
from django_ayework.worker import bounds
from django_ayework.worker.vitals import Vitals

#: Seconds for one question and its answer. Whoever is slower is left alone: a supervisor answers between
#: its other tasks.
QUICK = 0.5
LONGEST_QUESTION = 65_536
PHRASES = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}

Report = tuple[Health, Sequence[Signs]]


class HealthServer:
    """Listens, and answers one question at a time whenever it is told that there is one.

    It has no thread of its own, so that a process that forks can have one too.
    """

    def __init__(self, host: str, port: int, ask: Callable[[], Report] | None = None) -> None:
        self.ask = ask
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=16)
        self._socket.setblocking(False)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def fileno(self) -> int:
        """Return what to wait for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()

    def answer(self) -> None:
        """Answer whoever is first in line."""
        with suppress(OSError):  # it has gone away, or dawdles
            client, _ = self._socket.accept()
            with client:
                client.settimeout(QUICK)
                client.sendall(self.response_to(client.recv(LONGEST_QUESTION)))

    def response_to(self, question: bytes) -> bytes:
        """Return the whole response to a request."""
        method, path, *_ = [*question.decode("latin-1").split(None, 2), "", ""]
        status, body = self.answer_to(method, path.partition("?")[0])
        payload = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 {status} {PHRASES[status]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else payload)

    def answer_to(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        """Return the status and the body."""
        if method not in ("GET", "HEAD"):
            return 405, {"error": f"expected GET, got: {method!r}."}
        if path not in ("/live", "/ready") or self.ask is None:
            return 404, {"error": f"expected /live or /ready, got: {path!r}."}
        health, signs = self.ask()
        is_well = health.live if path == "/live" else health.ready
        return 200 if is_well else 503, {**asdict(health), "workers": [asdict(one) for one in signs]}


def report_on(vitals: Vitals) -> Report:
    """Return how one worker of this process is."""
    signs = vitals.signs()
    return health_of(signs, bounds.STALL), [signs]


def serve_in_thread(server: HealthServer) -> threading.Thread:
    """Let a server answer in a thread of its own, as long as the process lives."""

    def serve() -> None:
        while True:
            select.select([server], [], [])
            server.answer()

    thread = threading.Thread(target=serve, name="ayework-health", daemon=True)
    thread.start()
    return thread
