"""What surrounds one attempt of a handler."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from tests.fixtures import reported, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]

Configure = Callable[..., None]


@pytest.fixture
def configure(settings: Any) -> Configure:
    """Set keys of ``AYEWORK`` for this test, over those set before."""

    def configure(**keys: Any) -> None:
        settings.AYEWORK = {"POLL_INTERVAL": 0.05, **getattr(settings, "AYEWORK", {}), **keys}

    return configure


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> object:
    """Give the works of this process a fresh stage."""
    from tests.attempts import works

    fresh = works.Stage()
    monkeypatch.setattr(works, "stage", fresh)
    return fresh


def take_away(id: str) -> None:
    """Reclaim a work as another worker does after its lease has lapsed."""
    from django.db import transaction

    from django_ayework.flow.maintenance import reclaim
    from django_ayework.models import Work
    from django_ayework.testing import now

    with transaction.atomic():  # or its worker might claim it once more
        Work.objects.update(leased_until=now() - timedelta(seconds=1))
        assert reclaim() == 1
        Work.objects.update(status="scheduled", run_at=now() + timedelta(hours=1))


def ended(handle: Any) -> Any:
    """Wait for the end of a work; return its state."""
    from tests.processes import eventually

    return eventually(lambda: (state := handle.state()).status in ("success", "dead", "cancelled") and state)


def renew_soon(worker: Any) -> None:
    """Make the leases of a worker due for renewal, so that it notices a work that it has lost."""
    for delivery in worker._in_flight.all():
        delivery.renewed_at = float("-inf")


@pytest.fixture
def quick_watch(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog of a worker of this process checks often, and interrupts soon."""
    from django_ayework.worker import worker as worker_module

    configure()
    monkeypatch.setattr(worker_module, "CHECK_EVERY", 0.005)
