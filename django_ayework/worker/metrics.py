"""The page of metrics of a worker process, and of the processes of a supervisor."""

from __future__ import annotations

import selectors
import signal
import socket
from contextlib import AbstractContextManager
from typing import Protocol

from django_ayework.store.sessions import engine_session
from django_ayework.worker.http import HttpServer, Response

PATH = "/metrics"
#: Seconds that a statement for a page may take: the figures of the database are then left out.
STATEMENT_TIMEOUT = 5.0


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
    """Serve the page in a child of a supervisor until that has gone or sends SIGTERM; return the exit status.

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
