"""The application under test."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class ChaosConfig(AppConfig):
    """Notes in the ledger which workers have started."""

    name = "chaos"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Listen for workers that start."""
        from django_ayework.signals import worker_started

        worker_started.connect(note_worker, dispatch_uid="chaos")


def note_worker(worker: Any, **kwargs: Any) -> None:
    """Note the id of a worker, by which attempts name it."""
    from chaos.ledger import note

    note("up", worker=worker.id)
