"""Random workflows: the same few in every run, or as many new ones as AYEWORK_MACHINE_EXAMPLES says.

A failure names the steps that led to it. New ones are made as short as possible, which takes long.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from django.db import connection
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from django_ayework.store.clock import clock
from tests.machine.history import EVENTS
from tests.machine.machine import Workflow, next_id

START = datetime(2026, 1, 1, tzinfo=UTC)
#: How many random workflows to try, and of how many steps; without it the same few; on servers fewer.
EXAMPLES = int(os.environ.get("AYEWORK_MACHINE_EXAMPLES", "0"))
STEPS = int(os.environ.get("AYEWORK_MACHINE_STEPS", "20"))


@pytest.mark.django_db
@pytest.mark.timeout(0 if EXAMPLES else 300)
def test_whatever_happens_the_tables_stay_consistent_and_all_can_be_mended(repeatable: None) -> None:
    run_state_machine_as_test(
        Workflow,
        settings=settings(
            max_examples=EXAMPLES or (25 if connection.vendor == "sqlite" else 8),
            stateful_step_count=STEPS,
            derandomize=not EXAMPLES,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
def repeatable(settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Ids and moments are the same in every run; travelling in time is as ever."""
    settings.AYEWORK = {"ID": next_id, "ON_EVENT": EVENTS.append}
    caplog.set_level(logging.ERROR, "django_ayework")
    ticks = count()
    monkeypatch.setattr(clock, "now", lambda: START + timedelta(milliseconds=next(ticks)) + clock._shift)
