"""``perform()``: call one handler as the engine would, without queueing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django_ayework.define.instructions import Instruction
from django_ayework.define.requests import WorkRequest
from django_ayework.flow.births import Family, born
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement
from django_ayework.rules.durations import later
from django_ayework.store.clock import clock
from django_ayework.testing.calling import called, safely
from django_ayework.worker.attempt import Opened, opened
from django_ayework.worker.delivery import Delivery


@dataclass(frozen=True, slots=True)
class Performed:
    """How a handler did: its own ``result``, the ``instruction`` it returned, the ``error`` it raised."""

    result: Any = None
    instruction: Instruction[Any, Any] | None = None
    error: BaseException | None = None


def perform(request: WorkRequest[Any, Any], *, attempt: int = 1) -> Performed:
    """Run the handler of a request once, its input stored and read back; nothing is queued or settled.

    Example::

        assert perform(add(a=1, b=2)).result == 3
    """
    now = clock.now()
    row = born(request, {}, Family(), now).row._replace(attempt=attempt, worker="perform")
    delivery = Delivery(row, lease=(later(now, 30) - now).total_seconds())
    ready = opened(delivery, EngineServices(), stored=False)
    if isinstance(ready, Settlement):
        raise AssertionError(f"the work could not be started: {ready.ending}")
    try:
        outcome = safely(ready, lambda: outcome_of(ready))
    except Exception as error:
        return Performed(error=error)
    if isinstance(outcome, Instruction):
        return Performed(getattr(outcome, "value", None), outcome)
    return Performed(outcome)


def outcome_of(attempt: Opened) -> Any:
    """Call the handler, see that its outcome can be carried out, and return it."""
    with attempt.stages.around():
        returned = called(attempt)
        attempt.stages.conclude(attempt.context, returned)
    return attempt.stages.outcome(returned)
