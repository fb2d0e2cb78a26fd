"""What the curves of ours have in common: every database that answers, and a crew for each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from bench.peers.catalogue import ours
from bench.peers.crew import Crew
from bench.peers.rounds import crews
from bench.pool import buffer_pool
from bench.report.files import keep
from bench.report.readings import Reading
from bench.report.table import render
from bench.report.targets import TARGETS
from bench.running import stop_in_order
from tests.databases import SERVICES, ask_all


@dataclass(frozen=True)
class Case:
    """One point of a curve."""

    title: str


C = TypeVar("C", bound=Case)


def databases() -> list[str]:
    """Return the databases that answer and hold our works."""
    stop_in_order()
    ask_all()
    return [name for name, service in SERVICES.items() if service.runs_suite and service.answer]


@contextmanager
def own_crews(database: str, cases: Sequence[C]) -> Iterator[dict[C, Crew]]:
    """Yield a crew of ours for each case, each with a database of its own."""
    each = [replace(ours(database), name=f"ours {number}") for number, _ in enumerate(cases)]
    with buffer_pool(database), crews(each) as found:
        yield {case: found[contestant] for case, contestant in zip(cases, each, strict=True)}


def report(name: str, readings: Sequence[Reading], database: str) -> None:
    """Print the readings of one database, and keep them."""
    keep(f"{name}-{database}", readings)
    print("\n" + render(readings, TARGETS), flush=True)
