"""Propagators, OpenTelemetry and Sentry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings

from tests.fixtures import consistent, quick_polls, undeclared  # noqa: F401

collect_ignore_glob = [] if django_settings.configured else ["test_*.py"]


@pytest.fixture
def registered() -> Iterator[Callable[[Any], Any]]:
    """Register propagators for the time of a test."""
    from django_ayework import propagation

    before = list(propagation.propagators)

    def add(propagator: Any) -> Any:
        propagation.register(propagator)
        return propagator

    yield add
    propagation.propagators[:] = before


@pytest.fixture
def intake(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let works skip the queue, as outside of tests; in the end none of their threads is left."""
    from django_ayework.flow import enqueue as queueing
    from django_ayework.worker import skip_queue

    fresh = skip_queue.Intake()
    monkeypatch.setattr(skip_queue, "intake", fresh)
    monkeypatch.setattr(queueing.providers, "held_back", False)
    yield
    assert fresh.stop()
