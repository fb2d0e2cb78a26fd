"""``perform()``: call one handler as the engine would, without queueing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django_ayework.define.instructions import Instruction
from django_ayework.define.requests import WorkRequest
from django_ayework.define.types import BatchType
from django_ayework.flow.new_works import Lineage, build_new_work
from django_ayework.flow.outcomes import success_of_value
from django_ayework.flow.services import EngineServices
from django_ayework.flow.settle import Settlement
from django_ayework.logs import attempt_logged
from django_ayework.rules.durations import later
from django_ayework.store.clock import clock
from django_ayework.testing.running import call_run, called, safely
from django_ayework.worker.attempt import Opened, facts_of, opened, require_recordable
from django_ayework.worker.batch import BatchRun, require_outputs
from django_ayework.worker.delivery import Delivery


@dataclass(frozen=True, slots=True)
class Performed:
    """How a handler did: what it ``returned``, or the ``error`` it raised."""

    returned: Any = None
    error: BaseException | None = None

    @property
    def result(self) -> Any:
        """Its own result; raises the error if there is one."""
        if self.instruction is not None:
            return getattr(self.instruction, "value", None)
        return self.returned

    @property
    def instruction(self) -> Instruction[Any, Any] | None:
        """The instruction that it returned, or None; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.returned if isinstance(self.returned, Instruction) else None


def perform(request: WorkRequest[Any, Any], *, attempt: int = 1) -> Performed:
    """Run the handler of a request once, its input stored and read back; nothing is queued or settled.

    Example::

        assert perform(add(a=1, b=2)).result == 3
    """
    now = clock.now()
    row = build_new_work(request, {}, Lineage(), now).row._replace(attempt=attempt, worker="perform")
    delivery = Delivery(row, lease=(later(now, 30) - now).total_seconds())
    ready = opened(delivery, EngineServices(), stored=False)
    if isinstance(ready, Settlement):
        raise AssertionError(f"the work could not be started: {ready.ending}")
    try:
        with attempt_logged(facts_of(ready)):
            outcome = safely(ready, lambda: outcome_of(ready))
    except BaseException as error:
        require_recordable(error)
        return Performed(error=error)
    return Performed(outcome)


def outcome_of(attempt: Opened) -> Any:
    """Call the handler, see that its outcome can be carried out, and return it."""
    if isinstance(attempt.work_type, BatchType):
        return output_of(attempt)
    with attempt.stages:
        returned = called(attempt)
        attempt.stages.conclude(attempt.context, returned)
    return attempt.stages.outcome(returned)


def output_of(attempt: Opened) -> Any:
    """Call the handler of a batch with this one item, see that its output can be stored, and return it."""
    run = BatchRun([attempt])
    [output] = require_outputs(run, call_run(run))
    if isinstance(output, BaseException):
        raise output
    success_of_value(output, attempt.delivery.row, attempt.work_type)
    return output
