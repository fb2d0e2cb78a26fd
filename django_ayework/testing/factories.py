"""Factories for every model, with factory-boy (``pip install factory-boy``).

They make rows, not works: nothing is checked, nothing is notified. Use ``enqueue`` where you want a real one.
"""
# factory-boy has hardly any types, and its Meta classes are not meant to be subtypes of each other.
# mypy: allow-untyped-calls
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from typing import Any

from factory.declarations import LazyAttribute, LazyFunction, SelfAttribute, Sequence, SubFactory
from factory.django import DjangoModelFactory

from django_ayework import models
from django_ayework.define.requests import GATE_TYPE, new_uuid7
from django_ayework.flow.payloads import StoredOptions, encode_options
from django_ayework.rules.retry import RetryPolicy
from django_ayework.rules.states import TERMINAL, Outcome, Reason, Status
from django_ayework.store.database import alias, clock


class EngineFactory(DjangoModelFactory[Any]):
    """Makes rows in the queue's database."""

    class Meta:
        abstract = True

    @classmethod
    def _get_manager(cls, model_class: Any) -> Any:
        return model_class._default_manager.db_manager(alias())


class WorkFactory(EngineFactory):
    """A pending work; give ``status=`` and what belongs to it for another."""

    class Meta:
        model = models.Work

    id = LazyFunction(new_uuid7)
    type = "shop.add"
    queue = "default"
    status = Status.PENDING
    input = '{"a":1,"b":2}'
    options = LazyFunction(lambda: encode_options(StoredOptions(retry=RetryPolicy())))
    dedup_type = LazyAttribute(lambda work: work.type if getattr(work, "dedup_key", None) else None)
    queued_at = LazyFunction(lambda: clock.now())
    run_at = SelfAttribute("queued_at")
    ended_at = LazyAttribute(lambda work: clock.now() if work.status in TERMINAL else None)


class DeadLetterFactory(WorkFactory):
    """A dead work."""

    class Meta:
        model = models.DeadLetter

    status = Status.DEAD
    reason = Reason.EXHAUSTED
    error = "ValueError: no luck"
    attempt = 3


class GateFactory(WorkFactory):
    """A gate that waits; make its waiter and edges, too."""

    class Meta:
        model = models.Gate

    type = GATE_TYPE
    status = Status.BLOCKED
    input = "[]"


class GroupFactory(EngineFactory):
    """An open group."""

    class Meta:
        model = models.Group

    id = LazyFunction(new_uuid7)
    open = 1
    total = 2


class WorkControlFactory(EngineFactory):
    """A type that is paused."""

    class Meta:
        model = models.WorkControl

    scope = "type"
    name = Sequence(lambda number: f"shop.type{number}")
    paused = True
    changed_at = LazyFunction(lambda: clock.now())


class ScheduleFactory(EngineFactory):
    """A schedule of each minute that code had declared."""

    class Meta:
        model = models.Schedule

    name = Sequence(lambda number: f"schedule{number}")
    kind = "every"
    every = 60.0
    function = "shop.add"
    tz = "UTC"
    last_at = LazyFunction(lambda: clock.now())


class FiringFactory(EngineFactory):
    """A firing that has queued nothing."""

    class Meta:
        model = models.Firing

    schedule = SubFactory(ScheduleFactory)
    occurrence = LazyFunction(lambda: clock.now())
    status = "fired"
    made_at = SelfAttribute("occurrence")


class WaiterFactory(EngineFactory):
    """A waiter for all of two works."""

    class Meta:
        model = models.Waiter

    work_id = LazyFunction(new_uuid7)
    condition = '"all-success"'
    total = 2


class EdgeFactory(EngineFactory):
    """An edge whose watched work has not ended."""

    class Meta:
        model = models.Edge

    waiter_id = LazyFunction(new_uuid7)
    watched_id = LazyFunction(new_uuid7)
    position = Sequence(lambda number: number)


class AttemptFactory(EngineFactory):
    """A failed attempt."""

    class Meta:
        model = models.Attempt

    work_id = LazyFunction(new_uuid7)
    number = 1
    worker = LazyFunction(new_uuid7)
    outcome = Outcome.FAILED
    error = "ValueError: no luck"
    traceback = "Traceback (most recent call last): …"
    started_at = LazyFunction(lambda: clock.now())
    ended_at = LazyFunction(lambda: clock.now())


class WorkerProcessFactory(EngineFactory):
    """A worker that is alive."""

    class Meta:
        model = models.WorkerProcess

    id = LazyFunction(new_uuid7)
    host = "localhost"
    pid = Sequence(lambda number: 1000 + number)
    concurrency = 8
    started_at = LazyFunction(lambda: clock.now())
    seen_at = LazyFunction(lambda: clock.now())


class StoreEntryFactory(EngineFactory):
    """A key that never expires."""

    class Meta:
        model = models.StoreEntry

    key = Sequence(lambda number: f"key-{number}")


class InputRevisionFactory(EngineFactory):
    """The former input of a work."""

    class Meta:
        model = models.InputRevision

    work_id = LazyFunction(new_uuid7)
    input = '{"a":1,"b":2}'
    replaced_at = LazyFunction(lambda: clock.now())


class BulkActionFactory(EngineFactory):
    """A bulk action whose first page is due: a retry of all dead works."""

    class Meta:
        model = models.BulkAction

    id = LazyFunction(new_uuid7)
    action = "retry"
    filter = '{"status":"dead"}'
    until = LazyFunction(lambda: clock.now())
    next_at = SelfAttribute("until")
    created_at = SelfAttribute("until")


class ThroughputFactory(EngineFactory):
    """A minute in which one attempt succeeded."""

    class Meta:
        model = models.Throughput

    seconds = 60
    start = LazyFunction(lambda: clock.now().replace(second=0, microsecond=0))
    type = Sequence(lambda number: f"shop.type{number}")
    queue = "default"
    succeeded = 1
    duration = 0.1
