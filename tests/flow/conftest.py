"""Fixtures of the tests of queueing and settling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings

from tests.fixtures import reported, undeclared  # noqa: F401

collect_ignore_glob = [] if django_settings.configured else ["test_*.py"]

Configure = Callable[..., None]


@pytest.fixture
def configure(settings: Any) -> Configure:
    """Set keys of ``AYEWORK`` for this test, over those set before."""

    def configure(**keys: Any) -> None:
        settings.AYEWORK = {**getattr(settings, "AYEWORK", {}), **keys}

    return configure


@pytest.fixture
def events(configure: Configure) -> list[Any]:
    """Every event that ``ON_EVENT`` is called with."""
    seen: list[Any] = []
    configure(ON_EVENT=seen.append)
    return seen


@pytest.fixture
def queued() -> Iterator[list[str]]:
    """The ids of the works that ``work_queued`` is sent for."""
    from django_ayework.signals import work_queued

    seen: list[str] = []

    def receiver(work: Any, **keywords: Any) -> None:
        seen.append(work.id)

    work_queued.connect(receiver)
    yield seen
    work_queued.disconnect(receiver)


@pytest.fixture
def outcome() -> Any:
    """Queue a request with a single attempt, run it, return its state."""
    from django_ayework import enqueue
    from django_ayework.testing import drain
    from tests.flow.kit import ONCE

    def outcome(request: Any, **options: Any) -> Any:
        handle = enqueue(request, **{"retry": ONCE, **options})
        drain(raises=False)
        return handle.state()

    return outcome


@pytest.fixture
def consistent(db: None) -> Iterator[None]:
    """Check every invariant after the test, once what is due has run."""
    from django_ayework.testing import drain
    from tests.invariants import assert_consistent

    yield
    drain(raises=False)
    assert_consistent()
