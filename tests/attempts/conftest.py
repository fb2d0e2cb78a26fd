"""What surrounds one attempt of a handler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from tests.fixtures import fresh_stage, reported, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]
stage = fresh_stage("tests.attempts.works")


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Set keys of ``AYEWORK`` for this test, over those set before."""

    def configure(**keys: Any) -> None:
        settings.AYEWORK = {"POLL_INTERVAL": 0.05, **getattr(settings, "AYEWORK", {}), **keys}

    return configure


@pytest.fixture
def quick_watch(configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog of a worker of this process checks often, and interrupts soon."""
    from django_ayework.worker import bounds

    configure()
    monkeypatch.setattr(bounds, "CHECK_EVERY", 0.005)


def take_away(id: str) -> None:
    """Reclaim a work as another worker does after its lease has lapsed."""
    from django.db import transaction

    from django_ayework.flow.maintenance import reclaim
    from django_ayework.models import Work
    from django_ayework.testing import now

    with transaction.atomic():  # or its worker might claim it once more
        Work.objects.update(leased_until=now() - timedelta(seconds=1))
        assert len(reclaim()) == 1
        Work.objects.update(status="scheduled", run_at=now() + timedelta(hours=1))


def ended(handle: Any) -> Any:
    """Wait for the end of a work; return its state."""
    from tests.processes import eventually

    return eventually(lambda: (state := handle.state()).status in ("success", "dead", "cancelled") and state)


@contextmanager
def while_it_runs(request: Any, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Run a work in a worker until it has started; yield its handle and the worker."""
    from django_ayework import enqueue
    from django_ayework.testing import running_worker
    from tests.attempts import works
    from tests.processes import eventually

    handle = enqueue(request, **options)
    with running_worker(concurrency=1) as worker:
        eventually(works.stage.started.is_set)
        yield handle, worker


@contextmanager
def connected(receiver: Any, *signals: Any) -> Iterator[None]:
    """Let a receiver hear signals for a while."""
    for signal in signals:
        signal.connect(receiver)
    try:
        yield
    finally:
        for signal in signals:
            signal.disconnect(receiver)


def renew_soon(worker: Any) -> None:
    """Make the leases of a worker due for renewal, so that it notices a work that it has lost."""
    for delivery in worker._in_flight.all():
        delivery.renewed_at = float("-inf")
