"""Two worker processes while their Redis server is killed, comes back empty, and is flushed."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from django_ayework import enqueue_many
from django_ayework.flow.sending import id_sender
from django_ayework.models import Work, WorkerProcess
from tests.app.models import Order
from tests.delivery.works import once
from tests.processes import eventually, worker_process

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("postgresql")]
WORKS = 240


class Server:
    """A Redis server of the test's own, which keeps nothing on disk."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--save", "", "--bind", "127.0.0.1"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        eventually(self.answers)

    def kill(self) -> None:
        assert self._process
        self._process.kill()
        self._process.wait()

    def answers(self) -> bool:
        with suppress(OSError):
            return b"PONG" in self.ask(b"PING\r\n")
        return False

    def ask(self, command: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall(command)
            return connection.recv(100)


@pytest.fixture
def server(settings: Any, redis_url: str) -> Iterator[Server]:
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server to be killed")
    server = Server()
    server.start()
    settings.AYEWORK = {
        "REDIS_URL": server.url,
        "PUBSUB": "polling",
        "QUEUES": {"bulk": {"DELIVERY": "redis-streams"}},
    }
    id_sender.stop()
    id_sender.reset()
    yield server
    id_sender.stop()
    server.kill()


def ended() -> int:
    return Work.objects.filter(status="success").count()


def test_nothing_is_lost_or_doubled_when_redis_is_killed_and_flushed(server, process_env):
    env = process_env | {"DJANGO_SETTINGS_MODULE": "tests.delivery.settings", "TEST_REDIS_URL": server.url}
    with worker_process(env, "--concurrency", "2"), worker_process(env, "--concurrency", "2"):
        eventually(lambda: WorkerProcess.objects.count() == 2)
        enqueue_many([once(number=number) for number in range(WORKS // 2)])
        eventually(lambda: ended() >= 20)
        server.kill()
        enqueue_many([once(number=number) for number in range(WORKS // 2, WORKS)])
        before = ended()
        eventually(lambda: ended() > before)
        server.start()
        eventually(lambda: ended() >= WORKS // 2)
        server.ask(b"FLUSHALL\r\n")
        eventually(lambda: ended() == WORKS)
        enqueue_many([once(number=number) for number in range(WORKS, WORKS + 10)])
        eventually(lambda: ended() == WORKS + 10)
    numbers = sorted(int(reference) for reference in Order.objects.values_list("reference", flat=True))
    assert numbers == list(range(WORKS + 10))
    assert set(Work.objects.values_list("attempt", flat=True)) == {1}
