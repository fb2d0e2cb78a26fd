"""The occurrences of a schedule, and the plans of the statements of a tick."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from django_ayework.models import Firing, Schedule
from django_ayework.rules.schedules import BOUND, PUNCTUAL, Timing, plan
from django_ayework.store.database import clock
from django_ayework.store.schedules import first_queued, link_firing, soonest
from tests.store.plans import SHARE, analyse, plans_of

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
MOMENTS = st.integers(-(10**6), 10**6).map(lambda number: NOON + timedelta(milliseconds=number * 977))
TIMINGS = st.one_of(
    st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "15 3 * * 1", "3-9 */5 * * *"]).map(
        lambda cron: Timing(cron=cron, tz="America/New_York")
    ),
    st.tuples(st.integers(1, 10_000), MOMENTS).map(lambda drawn: Timing(every=drawn[0], anchor=drawn[1])),
)
SPANS = st.integers(0, 60_000).map(lambda seconds: timedelta(seconds=seconds))


@settings(deadline=None, max_examples=30)
@given(TIMINGS, MOMENTS)
def test_the_next_occurrence_is_later_and_there_is_none_in_between(timing, moment):
    found = timing.first_after(moment)
    assert found > moment
    assert timing.first_after(moment + (found - moment) / 2) == found
    assert timing.first_after(found - timedelta(microseconds=1)) == found


@settings(deadline=None, max_examples=30)
@given(TIMINGS, MOMENTS, SPANS, st.integers(1, 50))
def test_the_latest_are_the_last_of_all(timing, moment, span, number):
    first = timing.first_after(moment)
    everything = list(timing.between(first - timedelta(microseconds=1), first + span))
    if len(everything) < 5000:
        assert timing.latest(first, first + span, number) == everything[-number:]


@settings(deadline=None, max_examples=30)
@given(TIMINGS, MOMENTS, SPANS, st.sampled_from(["none", "last", "all"]))
def test_every_occurrence_is_fired_or_missed_and_what_follows_is_later(timing, moment, span, catch_up):
    first = timing.first_after(moment)
    now = first + span
    decided = plan(timing, first, now, catch_up, PUNCTUAL)
    due = timing.latest(first, now, BOUND * 2)
    assert decided.last <= now < timing.first_after(due[-1])
    left = [occurrence for occurrence in due if occurrence > decided.last]
    if len(due) < BOUND:
        assert decided.missed + (decided.fire is not None) + len(left) == len(due)
    if catch_up == "all":
        assert len(left) < BOUND
    else:
        assert left == []
    if catch_up == "none":
        assert decided.fire is None or now - decided.fire <= PUNCTUAL
    else:
        assert decided.fire is not None


def test_an_occurrence_that_is_read_in_a_zone_is_found_at_the_end_of_the_missing_hour():
    zone = ZoneInfo("America/New_York")  # as rows are read where a database has a TIME_ZONE
    timing, first = Timing(cron="0 3 * * *", tz=zone.key), datetime(2026, 3, 8, 3, tzinfo=zone)
    decided = plan(timing, first, NOON, "last", PUNCTUAL)
    assert (decided.fire, decided.missed) == (datetime(2026, 3, 8, 7, tzinfo=UTC), 0)


def test_years_asleep_are_decided_at_once():
    timing, at_last = Timing(cron="* * * * *"), NOON + timedelta(days=3650)
    decided = plan(timing, NOON, at_last, "last", PUNCTUAL)
    assert (decided.fire, decided.missed) == (at_last, BOUND)
    decided = plan(timing, NOON, at_last, "all", PUNCTUAL)
    assert decided.fire == at_last - timedelta(minutes=BOUND - 1)


@pytest.mark.parametrize(("cron", "days"), [("* * * * *", 1), ("*/5 9-16 * * *", 10), ("0 3 * * *", 900)])
def test_each_day_is_searched_for_once_to_decide_what_is_made_up_for(monkeypatch, cron, days):
    """A thousand firings are decided one by one, each from those that are left."""
    searched = []

    class Counted(croniter):
        def get_next(self, *args, **options):
            searched.append(self)
            return super().get_next(*args, **options)

    timing, now = Timing(cron=cron), NOON + timedelta(days=days)
    first = timing.first_after(NOON)
    plan(timing, first, now, "all", PUNCTUAL)
    monkeypatch.setattr("croniter.croniter", Counted)
    assert plan(timing, first + (now - first) / 2, now, "all", PUNCTUAL).fire < now
    assert len(searched) <= days / 2 + 10


def test_a_start_is_the_first_occurrence_of_an_interval_and_an_end_may_be_the_last():
    timing = Timing(every=60, anchor=NOON - timedelta(seconds=7), start=NOON, end=NOON + timedelta(minutes=2))
    occurrences = timing.between(NOON - timedelta(days=1), NOON + timedelta(days=1))
    assert list(occurrences) == [NOON + timedelta(minutes=number) for number in range(3)]
    assert Timing(every=86400.0, anchor=NOON).first_after(datetime.max.replace(tzinfo=UTC)) is None


SCHEDULES = "django_ayework_schedule"


@pytest.fixture(scope="module")
def asleep(django_db_setup, django_db_blocker):
    """Many schedules that are paused, ten that wait, and a long history; emptied afterwards."""
    now = clock.now()
    common = {"kind": "every", "every": 60.0, "function": "shop.add", "tz": "UTC"}
    paused = [Schedule(name=f"s{n}", paused=True, **common) for n in range(5_000 // SHARE)]
    waiting = [Schedule(name=f"w{n}", due_at=now + timedelta(hours=n), **common) for n in range(10)]
    with django_db_blocker.unblock():
        Schedule.objects.bulk_create(paused + waiting)
        first = Schedule.objects.get(name="w0")
        Firing.objects.bulk_create(
            Firing(schedule=first, occurrence=now - timedelta(minutes=n), status="fired", made_at=now)
            for n in range(1, 5_000 // SHARE)
        )
        analyse(SCHEDULES)
        analyse("django_ayework_firing")
        yield first
        Firing.objects.all().delete()
        Schedule.objects.all().delete()


@pytest.mark.django_db
def test_the_statements_of_a_tick_read_through_their_indexes(asleep):
    found, firings = [], "django_ayework_firing"
    plans = plans_of(lambda: found.extend(soonest(["w0", "w3", "s1"], ["shop.add"], 100)), SCHEDULES)
    assert len(found) == 2
    assert all("ayework_schedules" in plan for plan in plans), plans
    assert not any("filesort" in plan or "Sort" in plan or "TEMP B-TREE" in plan for plan in plans), plans
    tomorrow = clock.now() + timedelta(days=1)
    plans = plans_of(lambda: link_firing(asleep.pk, tomorrow, "fired", "", "", clock.now()), firings)
    plans += plans_of(lambda: first_queued(asleep.pk), firings)
    assert all("ayework_firing" in plan for plan in plans), plans
