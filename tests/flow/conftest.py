"""What the tests of queueing and settling share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_ayework import Retry, WorkState
from django_ayework.define.handles import WorkEvent

Configure = Callable[..., None]

ONCE = Retry(attempts=1)


@pytest.fixture
def configure(settings: Any) -> Configure:
    """Set keys of ``AYEWORK`` for this test, over those set before."""

    def configure(**keys: Any) -> None:
        settings.AYEWORK = {**getattr(settings, "AYEWORK", {}), **keys}

    return configure


@pytest.fixture
def events(configure: Configure) -> list[WorkEvent]:
    """Every event, as ``ON_EVENT`` hears it."""
    heard: list[WorkEvent] = []
    configure(ON_EVENT=heard.append)
    return heard


@pytest.fixture
def reported(configure: Configure) -> list[tuple[str, str]]:
    """What ``ON_ERROR`` hears: the error's text and the phase."""
    heard: list[tuple[str, str]] = []
    configure(ON_ERROR=lambda error, phase: heard.append((str(error), phase)))
    return heard


@pytest.fixture
def outcome(drain: Any) -> Any:
    """Queue a request with a single attempt, run it, return its state."""
    from django_ayework import enqueue

    def outcome(request: Any, **options: Any) -> WorkState:
        handle = enqueue(request, **{"retry": ONCE, **options})
        drain(raises=False)
        state = handle.state()
        assert state is not None
        return state

    return outcome
