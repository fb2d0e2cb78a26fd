"""The process that is about one database: ``python -m chaos.on_database``.

It takes a JSON object on the command line, and prints one per line: the version, and results as they come.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.running import stop_in_order
from chaos.deadlocks import Measured, measure
from chaos.faults import FAULTS
from chaos.run import Result, run_one
from chaos.servers import SERVERS, Server, Unavailable

DEADLOCKS = "deadlocks"


def main() -> int:
    """Carry out what the command line says."""
    stop_in_order()
    order = json.loads(sys.argv[1])
    for said in carry_out(order):
        print(json.dumps(said), flush=True)
    return 0


def carry_out(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Start the server, do everything, and remove it."""
    folder = Path(order["folder"])
    server = SERVERS[order["database"]](folder / "server")
    try:
        try:
            server.install()
        except Unavailable as error:
            yield {"unavailable": str(error)}
            return
        yield {"version": server.version()}
        for name in order["faults"]:
            place = folder / name
            place.mkdir()
            yield one(server, name, order, place)
    finally:
        server.stop()
        with contextlib.suppress(OSError):  # SQLite has none
            shutil.copy(folder / "server" / "server.log", folder)
        shutil.rmtree(folder / "server", ignore_errors=True)


def one(server: Server, name: str, order: dict[str, Any], place: Path) -> dict[str, Any]:
    """Carry out one run."""
    done: Measured | Result
    if name == DEADLOCKS:
        done = measure(server, order["seed"], order["seconds"], place)
        return {"measured": done.plain()}
    done = run_one(server, FAULTS[name], order["seed"], order["seconds"], place)
    return {"result": done.plain()}


if __name__ == "__main__":
    sys.exit(main())
