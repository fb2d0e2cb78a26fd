"""The small HTTP server of workers."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing

import pytest

from django_ayework.worker.health import HealthServer


@pytest.mark.skipif(not hasattr(socket, "TCP_DEFER_ACCEPT"), reason="Linux keeps silent clients")
def test_clients_that_send_nothing_hold_up_no_others():
    with closing(HealthServer("127.0.0.1", 0)) as server, ExitStack() as clients:
        for _ in range(20):
            clients.enter_context(socket.create_connection(server.address))
        asking = clients.enter_context(socket.create_connection(server.address))
        asking.sendall(b"GET /nothing HTTP/1.1\r\n\r\n")
        asking.settimeout(10)
        server.answer()  # the first client that has sent something
        assert asking.recv(100).startswith(b"HTTP/1.1 404 Not Found")
