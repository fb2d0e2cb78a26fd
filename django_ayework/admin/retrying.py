"""Retrying several works, one by one, so that one refusal does not undo the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import AyeworkError
from django_ayework.flow.retry import retry
from django_ayework.models import Work
from django_ayework.rules.states import RETRYABLE
from django_ayework.store.rows import statuses_of


@dataclass(slots=True)
class Retried:
    """What came of it: works retried, gates that wait again because of that, and refusals in words."""

    works: list[Work] = field(default_factory=list)
    revived: list[Work] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def retry_works(works: Sequence[Work]) -> Retried:
    """Retry works; gates come last, as retrying what killed them revives them."""
    report = Retried()
    retry_each([work for work in works if work.type != GATE_TYPE], report)
    gates = [work for work in works if work.type == GATE_TYPE]
    statuses = statuses_of(gate.id for gate in gates) if report.works else {}
    dead = [gate for gate in gates if statuses.get(gate.id, gate.status) in RETRYABLE]
    report.revived = [gate for gate in gates if gate not in dead]
    retry_each(dead, report)
    return report


def retry_each(works: Sequence[Work], report: Retried) -> None:
    """Retry each work by itself; a refusal is kept as its sentence."""
    for work in works:
        try:
            retry(work.id)
        except AyeworkError as refusal:
            report.refusals.append(str(refusal))
        else:
            report.works.append(work)
