"""Fixtures named like the functions of the testing kit.

pytest imports this module before Django is configured, so nothing of Django is imported until a fixture is
used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Show works that are never enqueued; the project's own filters come later, and win."""
    config.getini("filterwarnings").insert(0, "default::django_ayework.NeverEnqueued")


@pytest.fixture(autouse=True)
def _ayework_present() -> Iterator[None]:
    """Leave works that skip the queue to ``drain`` or a worker.

    After each test, undo time travel and end what carries wake-ups, which would keep its connection to the
    test database for some seconds.
    """
    module = sys.modules.get("django_ayework.flow.enqueue")
    if module is not None:
        module.providers.held_back = True
    yield
    module = sys.modules.get("django_ayework.store.database")
    if module is not None:
        module.clock.reset()
    module = sys.modules.get("django_ayework.flow.notify")
    if module is not None:
        module.close_idle()


def kit(name: str) -> Any:
    """Return a function of the kit."""
    from django_ayework import testing

    return getattr(testing, name)


@pytest.fixture
def drain() -> Any:
    """See django_ayework.testing.drain."""
    return kit("drain")


@pytest.fixture
def perform() -> Any:
    """See django_ayework.testing.perform."""
    return kit("perform")


@pytest.fixture
def enqueued() -> Any:
    """See django_ayework.testing.enqueued."""
    return kit("enqueued")


@pytest.fixture
def assert_enqueued() -> Any:
    """See django_ayework.testing.assert_enqueued."""
    return kit("assert_enqueued")


@pytest.fixture
def assert_not_enqueued() -> Any:
    """See django_ayework.testing.assert_not_enqueued."""
    return kit("assert_not_enqueued")


@pytest.fixture
def time_travel() -> Any:
    """See django_ayework.testing.time_travel."""
    return kit("time_travel")


@pytest.fixture
def running_worker() -> Any:
    """See django_ayework.testing.running_worker."""
    return kit("running_worker")


@pytest.fixture
def tick() -> Any:
    """See django_ayework.testing.tick."""
    return kit("tick")


@pytest.fixture
def run_bulk_actions() -> Any:
    """See django_ayework.testing.run_bulk_actions."""
    return kit("run_bulk_actions")
