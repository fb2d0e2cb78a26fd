"""History is kept for a month."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework import schedule
from django_ayework.flow.maintenance import FIRINGS_KEPT, prune
from django_ayework.models import Firing
from django_ayework.testing import tick, time_travel
from django_ayework.testing.factories import FiringFactory
from tests.schedules.works import note

pytestmark = pytest.mark.django_db


def test_old_firings_are_pruned_and_those_that_wait_are_not():
    old = FiringFactory(status="fired")
    waits = FiringFactory(status="queued")
    time_travel(FIRINGS_KEPT + timedelta(minutes=1))
    young = FiringFactory(status="missed")
    prune()
    assert set(Firing.objects.values_list("pk", flat=True)) == {waits.pk, young.pk} != {old.pk}


def test_nothing_is_fired_again_because_its_history_is_gone():
    schedule(name="tick", every=60, run=note)
    tick()
    time_travel(60)
    assert tick() == 1
    Firing.objects.all().delete()
    assert tick() == 0
