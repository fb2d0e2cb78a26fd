"""Works that skip the queue, in a process that really commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings

from tests.attempts.conftest import configure  # noqa: F401
from tests.fixtures import always_consistent, fresh_stage, reported, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]

stage = fresh_stage("tests.worker.works")


@pytest.fixture(autouse=True)
def intake(always_consistent: None, stage: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:  # noqa: F811
    """Let works skip the queue, as outside of tests; in the end none of their threads is left."""
    from django_ayework.flow import enqueue as queueing
    from django_ayework.worker import skip_queue as module

    fresh = module.Intake()
    monkeypatch.setattr(module, "intake", fresh)
    monkeypatch.setattr(queueing.providers, "held_back", False)
    yield fresh
    stage.go.set()
    assert fresh.stop()
