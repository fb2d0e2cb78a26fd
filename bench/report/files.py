"""The folder to which measurements write, and what is made of all that is in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.report.machine import machine
from bench.report.readings import Reading
from bench.report.table import render, summary
from bench.report.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
ORDER = (
    "enqueue-one",
    "enqueue-many",
    "drain",
    "drain-two",
    "atomic",
    "latency",
    "idle",
    "start-up",
    "retained",
    "fan-out",
    "groups",
    "fleet",
    "churn",
    "events",
    "tracing",
    "queue-port latency",
    "queue-port drain",
    "queue-port enqueue",
)


def out_folder() -> Path:
    """Return the folder, made if need be."""
    folder = Path(os.environ.get("BENCH_OUT") or ROOT / "bench" / "out")
    (folder / "readings").mkdir(parents=True, exist_ok=True)
    return folder


def scale() -> float:
    """Return by what counts are multiplied: 1, or less for a quick look."""
    return float(os.environ.get("BENCH_SCALE") or 1)


def scaled(count: int, least: int = 1) -> int:
    """Return a count at this scale."""
    return max(least, round(count * scale()))


def keep(name: str, readings: Iterable[Reading]) -> None:
    """Write the readings of one measurement; those it wrote before are replaced."""
    kept = {
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "scale": scale(),
        "machine": machine(),
        "readings": [reading.as_json() for reading in readings],
    }
    path = out_folder() / "readings" / f"{name}.json"
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def kept() -> list[Reading]:
    """Return all readings of the folder by phase, in the order in which the documentation explains phases."""
    found = [Reading.from_json(one) for file in files() for one in file["readings"]]
    order = {phase: place for place, phase in enumerate(ORDER)}
    return sorted(found, key=lambda reading: order.get(reading.phase, len(ORDER)))


def files() -> list[dict[str, Any]]:
    """Return what measurements have written."""
    paths = sorted((out_folder() / "readings").glob("*.json"))
    return [{"name": path.stem} | json.loads(path.read_text()) for path in paths]


def write_tables(readings: Sequence[Reading] | None = None) -> Path:
    """Write table.md and table.json from all readings of the folder; return the first."""
    readings = kept() if readings is None else readings
    judged = [target.judge(readings) for target in TARGETS]
    told = [
        {
            "target": one.target.text,
            "ours": vars(one.target.ours),
            "verdict": one.verdict,
            "reached": one.reached,
        }
        | ({"rival": vars(one.target.rival)} if one.target.rival else {})
        for one in judged
    ]
    folder = out_folder()
    table = {
        "measurements": [{k: file[k] for k in ("name", "taken", "scale")} for file in files()],
        "targets": told,
    }
    table["readings"] = [reading.as_json() for reading in readings]
    (folder / "table.json").write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    (folder / "table.md").write_text(render(readings, TARGETS) + "\n" + summary(readings, TARGETS))
    return folder / "table.md"
