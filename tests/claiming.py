"""The claimer of a worker, by itself."""

from __future__ import annotations

import threading

from django_ayework.flow.context_services import EngineServices
from django_ayework.rules.controls import EVERYTHING, Scope
from django_ayework.worker.claimer import Claimer, Commands
from django_ayework.worker.health import WorkerRegistration
from django_ayework.worker.in_flight import InFlight
from django_ayework.worker.maintenance import MaintenanceThread, Scheduler
from django_ayework.worker.settler import AttemptCounts


def claimer_of(scope: Scope = EVERYTHING, worker: str = "w") -> Claimer:
    """Return the claimer of a worker whose threads were not started, and that has no doers."""
    registration = WorkerRegistration(worker, "", scope.queues, 1)
    parts = InFlight(lambda: None), EngineServices(), AttemptCounts()
    maintenance = MaintenanceThread(worker, *parts, registration, scope)
    commands = Commands(registration, maintenance, lambda: None)
    wake = threading.Event()
    return Claimer(worker, scope, wake, lambda doer: 0, maintenance, Scheduler(), commands, arrivals=None)
