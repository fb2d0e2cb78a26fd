"""Shares that are known: at rest the same lanes come again and again."""

from __future__ import annotations

from django_ayework import work
from django_ayework.define.registry import registry
from django_ayework.rules.controls import Controls, TypeControl
from django_ayework.store.lanes import Lane
from django_ayework.worker.allocation import KnownClaimGroups, claim_groups_of


def test_the_shares_of_the_same_lanes_are_worked_out_once():
    known, controls = KnownClaimGroups(), Controls()
    lanes = [Lane("q", "known.first"), Lane("q", "known.second")]
    first = known.of(lanes, controls)
    assert first == claim_groups_of(lanes, controls)
    assert known.of(list(lanes), controls) is first
    assert known.of(lanes[:1], controls) == claim_groups_of(lanes[:1], controls)


def test_they_are_worked_out_again_when_controls_or_types_have_changed():
    known, lanes = KnownClaimGroups(), [Lane("q", "known.first"), Lane("q", "known.second")]
    assert len(known.of(lanes, Controls())) == 1
    paused = Controls({"known.first": TypeControl(paused=True)})
    assert [claim_group.types for claim_group in known.of(lanes, paused)] == [("known.second",)]

    @work(name="known.second", order="unit")
    def second() -> None: ...

    together = Controls()
    assert [claim_group.types for claim_group in known.of(lanes, together)] == [
        ("known.first",),
        ("known.second",),
    ]
    registry.unregister("known.second")
    assert [claim_group.types for claim_group in known.of(lanes, together)] == [
        ("known.first", "known.second")
    ]
