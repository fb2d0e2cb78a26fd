"""Live and ready workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from django_ayework.rules.health import Health, Phase, Signs, health_of, health_of_all

NOT_WORKING = [phase for phase in Phase if phase is not Phase.WORKING]


@pytest.mark.parametrize(
    ("change", "live", "ready", "reasons"),
    [
        ({}, True, True, ()),
        *(
            ({"phase": phase}, True, False, (f"the worker is {phase}",))
            for phase in list(Phase)
            if phase != "working"
        ),
        ({"trouble": "Error: gone"}, True, False, ("the database cannot be used: Error: gone",)),
        (
            {"silent": {"claiming": 1.0, "settling": 60.1}},
            False,
            False,
            ("the thread 'settling' has made no progress for 60 s",),
        ),
        ({"dead": ("settling",)}, False, False, ("the thread 'settling' has ended",)),
    ],
)
def test_the_health_of_a_worker(change, live, ready, reasons):
    signs = replace(Signs(phase=Phase.WORKING), **change)
    assert health_of(signs, stall=60.0) == Health(live=live, ready=ready, reasons=reasons)


def test_several_workers_have_the_health_of_the_worst():
    ill = Health(live=False, ready=False, reasons=("stuck",))
    well = Health(live=True, ready=True)
    assert health_of_all([("a", well), ("b", well)]) == well
    assert health_of_all([("a", well), ("b", ill)]) == Health(live=False, ready=False, reasons=("b: stuck",))
