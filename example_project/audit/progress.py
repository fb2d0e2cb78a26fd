"""How far an audit has come, for the page and for the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from django.utils import timezone

from django_ayework import Status, WorkState, get_handle
from example_project.audit.models import Audit

PATIENCE = 3.0  # seconds after which somebody should be told that no worker answers


class Phase(StrEnum):
    """Where an audit stands."""

    WAITING = "waiting"
    INSPECTING = "inspecting"
    REPORTING = "reporting"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """A phase and its numbers; ``problem`` says why an audit failed."""

    phase: Phase
    done: int = 0
    total: int = 0
    problem: str = ""
    lonely: bool = False  # no worker has picked it up for a while

    @property
    def ended(self) -> bool:
        """True when nothing more will change."""
        return self.phase in (Phase.FINISHED, Phase.FAILED)

    @property
    def percent(self) -> int:
        """Return the part that is done, from 0 to 100."""
        if self.phase is Phase.FINISHED:
            return 100
        return 100 * self.done // self.total if self.total else 0


def progress_of(audit: Audit) -> Progress:
    """Return how far ``audit`` has come, judging by its works and by the packages written so far."""
    done = audit.packages.count()
    total = audit.expected or 0
    if audit.report is not None:
        return Progress(Phase.FINISHED, done, total)
    root = get_handle(audit.work_id).state()
    if root is None:
        return Progress(Phase.FAILED, done, total, "Its work is no longer in the database.")
    if problem := _failure(root) or _failure(report_state(audit)):
        return Progress(Phase.FAILED, done, total, problem)
    if audit.expected is None:
        waited = (timezone.now() - audit.created_at).total_seconds()
        return Progress(Phase.WAITING, lonely=root.attempt == 0 and waited > PATIENCE)
    return Progress(Phase.INSPECTING if done < total else Phase.REPORTING, done, total)


def report_state(audit: Audit) -> WorkState | None:
    """Return the report's work; there is none before the inspections have ended and its gate has opened."""
    return get_handle(audit.report_work_id).state() if audit.report_work_id else None


def _failure(state: WorkState | None) -> str:
    if state is None:
        return ""
    if state.status not in (Status.dead, Status.cancelled):
        return ""
    return state.error or f"The work {state.type} is {state.status} ({state.reason or 'no reason given'})."
