"""A small HTTP server for what workers say about themselves, and the page of metrics that it serves."""

from __future__ import annotations

import json
import select
import selectors
import signal
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from http import HTTPStatus
from typing import ClassVar, NamedTuple, Protocol

from django_ayework.documentation import logged
from django_ayework.errors import ends_process
from django_ayework.logs import logger
from django_ayework.store.sessions import engine_session

#: Seconds for one request and its response. A slower client is left alone: a supervisor answers between its
#: other tasks.
QUICK = 0.5
LONGEST_REQUEST = 65_536
#: Seconds for which the system keeps a client that has sent nothing yet, where it can (Linux): see tcp(7).
SILENT = 60


class Response(NamedTuple):
    """A response: its status, its type of content, and its body."""

    status: int
    content_type: str
    body: bytes


def json_response(status: int, body: Mapping[str, object]) -> Response:
    """Return a response in JSON."""
    return Response(status, "application/json", json.dumps(body).encode())


class HttpServer(ABC):
    """A small HTTP server; it answers one request per call of :meth:`answer`.

    It has no thread of its own, so that a process that forks can have one too. A response must not wait for
    long. Raises OSError when the address cannot be listened at.
    """

    name: ClassVar[str]
    paths: ClassVar[tuple[str, ...]]

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=128)
        self._socket.setblocking(False)
        if hasattr(socket, "TCP_DEFER_ACCEPT"):  # silent clients hold up no others
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT)
        #: The host and the port at which it listens.
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    @abstractmethod
    def respond(self, path: str) -> Response | None:
        """Return the response to a request of one of the paths; None if there is none yet."""

    @property
    def url(self) -> str:
        """The address as a URL."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def answer(self) -> None:
        """Answer the first client that waits."""
        with suppress(OSError):  # it has gone away, or is too slow
            client, _ = self._socket.accept()
            with client:
                client.settimeout(QUICK)
                client.sendall(self._response_to(client.recv(LONGEST_REQUEST)))

    def serve_in_thread(self) -> None:
        """Answer in a thread of its own, as long as the process lives."""

        def serve() -> None:
            while True:
                select.select([self], [], [])
                self.answer()

        threading.Thread(target=serve, name=f"ayework-{self.name}", daemon=True).start()

    def _response_to(self, request: bytes) -> bytes:
        method, path, *_ = [*request.decode("latin-1").split(None, 2), "", ""]
        response = self._answer_to(method, path.partition("?")[0])
        head = (
            f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
            f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else response.body)

    def _answer_to(self, method: str, path: str) -> Response:
        if method not in ("GET", "HEAD"):
            return json_response(405, {"error": f"expected GET, got: {method!r}."})
        try:
            response = self.respond(path) if path in self.paths else None
        except BaseException as error:  # of a collector of the project's; the next request may be answered
            if ends_process(error):
                raise
            logger.exception(
                "The request %s %s could not be answered. %s", method, path, logged("request-not-answered")
            )
            return json_response(500, {"error": f"{type(error).__name__}: {error}"})
        if response is None:
            return json_response(404, {"error": f"expected {' or '.join(self.paths)}, got: {path!r}."})
        return response


PATH = "/metrics"
#: Seconds that a statement for a page may take, and opening its session: the figures of the database are then
#: left out. Prometheus waits for a page for 10 seconds, unless it is told otherwise.
STATEMENT_TIMEOUT = 5


class MetricsExporter(Protocol):
    """What makes pages of metrics. An app that is installed gives one: see :class:`Providers`."""

    def page(self) -> Response:
        """Return the page. It reads the database and raises nothing that a database raises."""
        ...

    def shared(self) -> AbstractContextManager[None]:
        """Let processes that are started in this block count together.

        Raises ImproperlyConfigured when it is too late for that.
        """
        ...

    def forget(self, process: int) -> None:
        """Remove what a process that has ended shows as long as it lives."""
        ...


class Providers:
    """What an installed app gives to workers, connected at start-up: nothing here imports the app."""

    exporter: MetricsExporter | None = None


providers = Providers()


class MetricsServer(HttpServer):
    """Serves the page at ``/metrics``."""

    name = "metrics"
    paths = (PATH,)

    def __init__(self, host: str, port: int, exporter: MetricsExporter) -> None:
        super().__init__(host, port)
        self.exporter = exporter

    def respond(self, path: str) -> Response:
        """Return the page; its statements have a session with bounds."""
        with engine_session(statement_timeout=STATEMENT_TIMEOUT):
            return self.exporter.page()


def export(end: socket.socket, server: MetricsServer) -> int:
    """Serve the page in a child of a supervisor until it ends or sends SIGTERM; return the exit status.

    The child runs no works: a page that is slow to make holds up neither workers nor their supervisor.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the supervisor, which stops its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    with selectors.DefaultSelector() as selector:
        selector.register(end, selectors.EVENT_READ)
        selector.register(server, selectors.EVENT_READ, server.answer)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    return 0  # the supervisor sends nothing: its end was closed
                key.data()
