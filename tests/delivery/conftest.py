"""Works of the queue "bulk", whose ids are delivered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings

from tests.fixtures import consistent, fresh_stage, undeclared  # noqa: F401

collect_ignore_glob = [] if settings.configured else ["test_*.py"]


stage = fresh_stage("tests.delivery.works")


@pytest.fixture
def queue(settings: Any) -> Iterator[Any]:
    """What delivers the ids of "bulk" in this process, where no worker polls before the test is over."""
    from django_ayework.flow.sending import id_sender
    from tests.delivery.kit import Carrier

    carrier = Carrier()
    settings.AYEWORK = {
        "POLL_INTERVAL": 600,
        "PUBSUB": "polling",
        "QUEUES": {"bulk": {"DELIVERY": carrier}},
        "ON_ERROR": lambda error, phase: carrier.reported.append((str(error), phase)),
    }
    id_sender.stop()
    id_sender.reset()
    yield carrier
    carrier.error = None
    id_sender.stop()
    id_sender.reset()


@pytest.fixture
def polls(settings: Any, queue: Any) -> None:
    """Let workers poll often."""
    settings.AYEWORK = {**settings.AYEWORK, "POLL_INTERVAL": 0.05}
