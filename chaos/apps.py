"""The application under test."""

from __future__ import annotations

import os
from typing import Any

from django.apps import AppConfig


class ChaosConfig(AppConfig):
    """Notes in the ledger which workers have started, and surrounds their works with trouble if asked to."""

    name = "chaos"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Listen for workers that start."""
        from django_ayework.signals import worker_started

        worker_started.connect(note_worker, dispatch_uid="chaos")
        if os.environ.get("CHAOS_TROUBLE"):
            from chaos import trouble

            trouble.begin()


def note_worker(worker: Any, **kwargs: Any) -> None:
    """Note the id of a worker, by which attempts name it."""
    from chaos.ledger import note

    note("up", worker=worker.id)
