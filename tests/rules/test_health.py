"""Who is live, and who is ready."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_ayework.rules.health import Health, Phase, health_of, health_of_all, signs_of_nobody

WELL = signs_of_nobody(Phase.WORKING)


def test_a_worker_at_work_is_live_and_ready():
    assert health_of(WELL, stall=60.0) == Health(live=True, ready=True)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.WORKING])
def test_a_worker_that_does_not_claim_is_live_and_not_ready(phase):
    health = health_of(signs_of_nobody(phase), stall=60.0)
    assert (health.live, health.ready, health.reasons) == (True, False, (f"the worker is {phase}",))


def test_a_database_that_is_away_kills_nobody():
    health = health_of(replace(WELL, trouble="OperationalError: gone"), stall=60.0)
    assert (health.live, health.ready) == (True, False)
    assert health.reasons == ("the database cannot be used: OperationalError: gone",)


def test_a_thread_without_progress_is_named():
    health = health_of(replace(WELL, silent={"claiming": 1.0, "settling": 60.1}), stall=60.0)
    reason = "the thread 'settling' has made no progress for 60 s"
    assert (health.live, health.ready, health.reasons) == (False, False, (reason,))


def test_a_thread_that_has_ended_is_named():
    health = health_of(replace(WELL, dead=("settling",)), stall=60.0)
    reason = "the thread 'settling' has ended"
    assert (health.live, health.ready, health.reasons) == (False, False, (reason,))


def test_several_are_as_well_as_the_worst_of_them():
    ill = Health(live=False, ready=False, reasons=("stuck",))
    well = Health(live=True, ready=True)
    assert health_of_all([("a", well), ("b", well)]) == well
    assert health_of_all([("a", well), ("b", ill)]) == Health(live=False, ready=False, reasons=("b: stuck",))
