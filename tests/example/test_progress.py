"""What is said of an audit, for each state of its works."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from django_ayework import Status
from example_project.audit import progress
from example_project.audit.models import Audit, Package
from example_project.audit.progress import Phase, progress_of

pytestmark = pytest.mark.django_db
States = dict[str, SimpleNamespace]


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> States:
    """The states of works by id; a work that is not here is not in the database."""
    known: States = {}
    monkeypatch.setattr(progress, "get_handle", lambda id: SimpleNamespace(state=lambda: known.get(id)))
    return known


def state(
    status: Status, attempt: int = 1, error: str | None = None, reason: str | None = None
) -> SimpleNamespace:
    return SimpleNamespace(type="audit.x", status=status, attempt=attempt, error=error, reason=reason)


def audit_of(expected: int | None = None, packages: int = 0, age: float = 0) -> Audit:
    audit = Audit.objects.create(
        work_id="root", report_work_id="report" if expected else "", expected=expected
    )
    audit.created_at = timezone.now() - timedelta(seconds=age)
    for number in range(packages):
        Package.objects.create(audit=audit, location=str(number), name="x")
    return audit


@pytest.mark.parametrize(("attempt", "age", "lonely"), [(0, 0, False), (0, 10, True), (1, 10, False)])
def test_waiting(states: States, attempt: int, age: float, lonely: bool) -> None:
    states["root"] = state(Status.pending, attempt)
    told = progress_of(audit_of(age=age))
    assert (told.phase, told.lonely, told.percent) == (Phase.WAITING, lonely, 0)


@pytest.mark.parametrize(
    ("packages", "phase"), [(0, Phase.INSPECTING), (3, Phase.INSPECTING), (4, Phase.REPORTING)]
)
def test_running(states: States, packages: int, phase: Phase) -> None:
    states |= {"root": state(Status.success), "report": state(Status.blocked, 0)}
    told = progress_of(audit_of(expected=4, packages=packages))
    assert (told.phase, told.done, told.total, told.percent) == (phase, packages, 4, 25 * packages)
    assert not told.ended


def test_finished_needs_no_works(states: States) -> None:
    audit = audit_of(expected=4, packages=3)
    audit.report = {}
    told = progress_of(audit)
    assert (told.phase, told.percent, told.ended) == (Phase.FINISHED, 100, True)


@pytest.mark.parametrize(
    ("root", "report", "problem"),
    [
        (None, None, "no longer in the database"),
        (state(Status.dead, error="boom"), None, "boom"),
        (state(Status.dead, reason="expired"), None, "expired"),
        (state(Status.cancelled), None, "is cancelled"),
        (state(Status.success), state(Status.dead, error="late boom"), "late boom"),
    ],
)
def test_failed(
    states: States, root: SimpleNamespace | None, report: SimpleNamespace | None, problem: str
) -> None:
    states |= {name: found for name, found in (("root", root), ("report", report)) if found}
    told = progress_of(audit_of(expected=2))
    assert told.phase is Phase.FAILED
    assert problem in told.problem
