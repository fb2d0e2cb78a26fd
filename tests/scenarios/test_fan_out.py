"""Two worker processes run a fan-out and its join, and one of them is killed before the end."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_ayework import enqueue, get_handle
from django_ayework.models import Attempt, Group, Work
from tests.invariants import assert_consistent
from tests.processes import ended, eventually, worker_process
from tests.scenarios.works import root

CHILDREN = 60


@pytest.fixture
def env(process_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return process_env | {
        "DJANGO_SETTINGS_MODULE": "tests.scenarios.settings",
        "SCENARIO_PLACE": str(tmp_path),
    }


def lines(place: Path, prefix: str) -> Iterator[str]:
    for path in place.glob(f"{prefix}*"):
        yield from path.read_text().splitlines()


def settled_children() -> int:
    return Work.objects.filter(type="scenarios.piece", status="success").count()


def assert_complete(root_id: str) -> None:
    """One success each for root, gate, report and children; the gate fired once; the counts agree."""
    rows = Counter(Work.objects.values_list("type", "status"))
    assert rows == {
        ("scenarios.root", "success"): 1,
        ("scenarios.piece", "success"): CHILDREN,
        ("@work/dependency", "success"): 1,
        ("scenarios.report", "success"): 1,
    }
    group = Group.objects.get()
    assert (group.id, group.open, group.total, group.dead) == (root_id, 0, CHILDREN + 3, 0)
    assert get_handle(root_id).group(timeout=0) == sum(range(CHILDREN)), "each child was folded in once"
    report = Work.objects.get(type="scenarios.report")
    assert get_handle(report.id).result(timeout=0) == [CHILDREN, CHILDREN]
    assert report.parent_id == Work.objects.get(type="@work/dependency").id
    assert_consistent()


def test_a_worker_killed_in_the_middle_loses_nothing_and_settles_nothing_twice(
    env: dict[str, str], tmp_path: Path
):
    with worker_process(env) as victim, worker_process(env) as survivor:
        handle = enqueue(root(children=CHILDREN, place=str(tmp_path)))
        eventually(lambda: at_work(tmp_path, victim.pid) and at_work(tmp_path, survivor.pid))
        (tmp_path / "first half").touch()
        eventually(settled_children)
        victim.send_signal(signal.SIGKILL)
        ended(victim)
        (tmp_path / "second half").touch()
        eventually(lambda: Group.objects.filter(done_at__isnull=False).exists(), seconds=90)
        survivor.send_signal(signal.SIGTERM)
        assert ended(survivor)[0] == 0
    assert_complete(handle.id)
    lost = Counter(Attempt.objects.values_list("work_id", flat=True))
    assert set(Attempt.objects.values_list("outcome", "error")) <= {("lost", "worker lost")}
    for id, attempt, delivery in Work.objects.exclude(type="@work/dependency").values_list(
        "id", "attempt", "delivery"
    ):
        assert attempt == 1 + lost[id], "each attempt ended in one settlement"
        assert delivery >= attempt  # more where a slow machine has let a prefetched work go to the other
    events = Counter(lines(tmp_path, "events-"))
    succeeded = {event: count for event, count in events.items() if event.startswith("succeeded ")}
    assert set(succeeded.values()) == {1}, "no success has two events"
    assert events[f"group-done {handle.id}"] == 1


def at_work(place: Path, pid: int) -> bool:
    return (place / str(pid)).exists()
