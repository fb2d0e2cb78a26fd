"""A rival in a process of its own: acts round after round, each at the word of the test."""

import os
import time
from multiprocessing.connection import Connection


def serve(env: dict[str, str], pipe: Connection) -> None:
    """Receive the acts of a race; then for each round the microseconds to wait, and send what came of it."""
    os.environ.update(env)
    import django

    django.setup()
    from django.db import connections

    from tests.races.rival_processes import prepared

    while True:
        acts = [prepared(*act) for act in pipe.recv()]
        pipe.send("ready")
        for act in acts:
            wait(pipe.recv() / 1_000_000)
            pipe.send(act())
        connections.close_all()


def wait(seconds: float) -> None:
    """Stay awake: to sleep takes longer than what is to be met."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        continue
