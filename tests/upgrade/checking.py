"""What is wrong with a run of two versions: works that are lost, doubled, or run by the wrong version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: The type of gates, which no handler runs.
GATE = "@work/dependency"


@dataclass(frozen=True, slots=True)
class Queued:
    """A work that was queued, and the releases whose workers were there for it; none says: any of them."""

    id: str
    kind: str
    number: int
    run_by: frozenset[str] = frozenset()

    @property
    def value(self) -> int | None:
        """What the work, its chain or its group is to have as result."""
        return (sum(range(self.number)) if self.number else None) if self.kind == "fan_out" else self.number


@dataclass(frozen=True, slots=True)
class Report:
    """Works as (id, type, status, attempt), runs as (work, attempt, release), values of what was queued."""

    works: Sequence[Sequence[Any]]
    runs: Sequence[Sequence[Any]]
    values: Sequence[Any]


def findings(queued: Sequence[Queued], report: Report, releases: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each thing that is wrong."""
    works = {id: (type, status, attempt) for id, type, status, attempt in report.works}
    runs = defaultdict(list)
    for id, attempt, release in report.runs:
        runs[id].append((attempt, release))
    for each, value in zip(queued, report.values, strict=True):
        if each.id not in works:
            yield f"{each.kind} {each.id} was queued and is not there"
        elif value != each.value:
            yield f"{each.kind} {each.id}: expected {each.value!r}, got {value!r}"
        if each.run_by and (others := {release for _, release in runs[each.id]} - each.run_by):
            yield f"{each.kind} {each.id} was run by {', '.join(sorted(others))}, which had no worker"
    for id, (type, status, attempt) in works.items():
        if status != "success":
            yield f"{type} {id} is {status}"
        elif type != GATE and [number for number, _ in sorted(runs[id])] != [*range(1, attempt + 1)]:
            yield f"{type} {id} has {attempt} attempts, and ran {len(runs[id])} times"
    yield from (f"{id} ran and is not there" for id in runs if id not in works)
    for release in set(releases) - {release for found in runs.values() for _, release in found}:
        yield f"no work was run by the {release} release"
