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


def kit_fixture(name: str) -> Any:
    """Return the fixture that is a function of the kit."""

    def function() -> Any:
        from django_ayework import testing

        return getattr(testing, name)

    function.__doc__ = f"See django_ayework.testing.{name}."
    return pytest.fixture(name=name)(function)


drain = kit_fixture("drain")
perform = kit_fixture("perform")
enqueued = kit_fixture("enqueued")
assert_enqueued = kit_fixture("assert_enqueued")
assert_not_enqueued = kit_fixture("assert_not_enqueued")
time_travel = kit_fixture("time_travel")
running_worker = kit_fixture("running_worker")
tick = kit_fixture("tick")
run_bulk_actions = kit_fixture("run_bulk_actions")
