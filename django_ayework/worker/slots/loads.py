"""What takes a slot: one work, or a batch of them."""

from __future__ import annotations

from typing import TypeAlias

from django_ayework.define.registry import registry
from django_ayework.flow.services import EngineServices
from django_ayework.worker.attempts.attempt import arun
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.attempts.leaks import leave_clean
from django_ayework.worker.attempts.short_way import run_shortest
from django_ayework.worker.batches.batch import Batch
from django_ayework.worker.batches.running import Ended, arun_batch, run_batch

Load: TypeAlias = Delivery | Batch


def deliveries_in(load: Load) -> tuple[Delivery, ...]:
    """Return the works of a load."""
    return load.deliveries if isinstance(load, Batch) else (load,)


def is_async(load: Load) -> bool:
    """Tell whether the handler runs on the event loop."""
    work_type = registry.find(load.type)
    return work_type is not None and work_type.is_async


def is_interruptible(load: Load) -> bool:
    """Tell whether an abort may be raised inside the handler, in the thread that runs it."""
    work_type = registry.find(load.type)
    return work_type is not None and work_type.settings.interrupt


def run_load(load: Load, services: EngineServices) -> list[Ended]:
    """Run in this thread; return how each attempt ended."""
    try:
        if isinstance(load, Batch):
            return run_batch(load, services)
        return [(load, run_shortest(load, services))]
    finally:
        leave_clean(load)


async def arun_load(load: Load, services: EngineServices) -> list[Ended]:
    """Run on the event loop; return how each attempt ended."""
    return (
        await arun_batch(load, services) if isinstance(load, Batch) else [(load, await arun(load, services))]
    )


def without_outcome(load: Load) -> list[Ended]:
    """Return the outcomes of what did not run, or on which the engine itself failed."""
    return [(delivery, None) for delivery in deliveries_in(load)]


def runs_in_doer(load: Load) -> bool:
    """Tell whether a doer runs it, instead of a slot."""
    return deliveries_in(load)[0].doer is not None


def was_given_back(load: Load) -> bool:
    """Tell whether a work was given back before its start; a batch takes its slot even if all of its were."""
    return not isinstance(load, Batch) and load.withdrawn
