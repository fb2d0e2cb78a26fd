"""What surrounds one attempt of a handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings

from tests.fixtures import undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]

Configure = Callable[..., None]


@pytest.fixture
def configure(settings: Any) -> Configure:
    """Set keys of ``AYEWORK`` for this test, over those set before."""

    def configure(**keys: Any) -> None:
        settings.AYEWORK = {"POLL_INTERVAL": 0.05, **getattr(settings, "AYEWORK", {}), **keys}

    return configure


@pytest.fixture
def reported(configure: Configure) -> list[tuple[str, str]]:
    """What ``ON_ERROR`` hears: the error's text and the phase."""
    heard: list[tuple[str, str]] = []
    configure(ON_ERROR=lambda error, phase: heard.append((str(error), phase)))
    return heard


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> object:
    """Give the works of this process a fresh stage."""
    from tests.attempts import works

    fresh = works.Stage()
    monkeypatch.setattr(works, "stage", fresh)
    return fresh


@pytest.fixture
def quick_watch(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of this process look often, and interrupt soon."""
    from django_ayework.worker import worker as worker_module

    configure()
    monkeypatch.setattr(worker_module, "LOOK_EVERY", 0.005)
