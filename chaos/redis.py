"""A Redis server of the harness's own, which delivers the ids of works."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
import time

from chaos.servers import PATIENCE, Unavailable, free_port

#: Where the processes of a run find the address of the server.
ADDRESS = "CHAOS_REDIS"


class RedisServer:
    """A process on loopback that keeps nothing on disk, so that it comes back empty."""

    def __init__(self) -> None:
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def hindrance() -> str:
        """Return why there can be none here, or nothing."""
        if shutil.which("redis-server") is None:
            return "redis-server is not installed (on Debian: apt-get install redis-server)"
        return "" if importlib.util.find_spec("redis") else "the package redis is not installed"

    @property
    def url(self) -> str:
        """The address."""
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Start it; return when it answers. Raises Unavailable if it never does."""
        import redis

        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self._port), "--save", ""]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        end_at = time.monotonic() + PATIENCE
        while time.monotonic() < end_at:
            with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self.url) as client:
                client.ping()
                return
            time.sleep(0.05)
        raise Unavailable("the Redis server did not start")

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def flush(self) -> None:
        """Delete everything."""
        import redis

        with redis.Redis.from_url(self.url) as client:
            client.flushall()
