"""``ayework_scheduler``: what it fires, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from django_ayework import schedule
from django_ayework.models import Schedule, Work
from django_ayework.testing import time_travel
from tests.app.works import add

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def tick() -> Any:
    """A schedule of each minute."""
    declared = schedule(name="tick", every=60, run=add(a=1, b=2))
    yield declared
    declared.cancel()


def test_once_syncs_and_fires_what_is_due(call: Any, call_json: Any) -> None:
    assert call("ayework_scheduler", "--once") == "Fired 0 schedules.\n"
    assert Schedule.objects.get().name == "tick"
    time_travel(60)
    assert call_json("ayework_scheduler", "--once") == {"fired": 1}
    assert Work.objects.count() == 1
