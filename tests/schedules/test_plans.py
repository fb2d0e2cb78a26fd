"""A tick reads what is due, however many schedules sleep."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_ayework.models import Firing, Schedule
from django_ayework.store.clock import clock
from django_ayework.store.schedules import first_queued, insert_firing, soonest
from tests.store.plans import analyse, plans_of

SCHEDULES = "django_ayework_schedule"


@pytest.fixture(scope="module")
def asleep(django_db_setup, django_db_blocker):
    """20 000 schedules that are paused, ten that wait, and a long history; emptied afterwards."""
    now = clock.now()
    common = {"kind": "every", "every": 60.0, "function": "shop.add", "tz": "UTC"}
    with django_db_blocker.unblock():
        Schedule.objects.bulk_create(Schedule(name=f"s{n}", paused=True, **common) for n in range(20_000))
        Schedule.objects.bulk_create(
            Schedule(name=f"w{n}", due_at=now + timedelta(hours=n), **common) for n in range(10)
        )
        waiting = Schedule.objects.get(name="w0")
        Firing.objects.bulk_create(
            Firing(schedule=waiting, occurrence=now - timedelta(minutes=n), status="fired", made_at=now)
            for n in range(1, 20_000)
        )
        analyse(SCHEDULES)
        analyse("django_ayework_firing")
        yield waiting
        Firing.objects.all().delete()
        Schedule.objects.all().delete()


@pytest.mark.django_db
class TestPlans:
    def test_a_tick_reads_what_waits_alone(self, asleep):
        found = []
        plans = plans_of(lambda: found.extend(soonest(["w0", "w3", "s1"], ["shop.add"], 100)), SCHEDULES)
        assert len(found) == 2
        assert all("ayework_schedules" in plan for plan in plans), plans
        assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans), plans

    def test_an_occurrence_is_found_through_its_constraint(self, asleep):
        act = lambda: insert_firing(asleep.pk, clock.now() + timedelta(days=1), "fired", clock.now())  # noqa: E731
        plans = plans_of(act, "django_ayework_firing")
        assert all("ayework_firing" in plan for plan in plans), plans

    def test_what_is_queued_is_looked_for_in_the_history_of_its_schedule_alone(self, asleep):
        plans = plans_of(lambda: first_queued(asleep.pk), "django_ayework_firing")
        assert all("ayework_firing" in plan for plan in plans), plans
