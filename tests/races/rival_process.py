"""A rival in a process of its own: acts round after round, each at the word of the test.

It reads lines: first the acts of a race, as JSON; then one for each round, with the microseconds to wait. It
answers each with a line of JSON. The next race follows.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import django


def main() -> None:
    django.setup()
    from django.db import connections

    from tests.races.rival_processes import prepared

    for line in iter(sys.stdin.readline, ""):
        acts = [prepared(*act) for act in json.loads(line)]
        answer("ready")
        for act in acts:
            wait(int(sys.stdin.readline()) / 1_000_000)
            answer(act())
        connections.close_all()


def wait(seconds: float) -> None:
    """Stay awake: to sleep takes longer than what is to be met."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        continue


def answer(outcome: Any) -> None:
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
