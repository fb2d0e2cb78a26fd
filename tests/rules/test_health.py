"""Live and ready workers, slower claims while much fails, and reports of a backlog."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.doers import BacklogInfo
from django_ayework.hooks import PressureInfo, adaptive_delay
from django_ayework.rules.health import Episode, Health, Phase, Signs, health_of, health_of_all


@pytest.mark.parametrize(("change", "live", "ready", "reason"), [
    ({}, True, True, None),
    *(({"phase": phase}, True, False, f"the worker is {phase}") for phase in Phase if phase != "working"),
    ({"trouble": "Error: gone"}, True, False, "the database cannot be used: Error: gone"),
    ({"silent": {"a": 1.0, "b": 60.1}}, False, False, "the thread 'b' has made no progress for 60 s"),
    ({"dead": ("settling",)}, False, False, "the thread 'settling' has ended"),
])  # fmt: skip
def test_the_health_of_a_worker(change, live, ready, reason):
    signs = replace(Signs(phase=Phase.WORKING), **change)
    assert health_of(signs, stall=60.0) == Health(live=live, ready=ready, reasons=(reason,) if reason else ())


def test_several_workers_have_the_health_of_the_worst():
    ill = Health(live=False, ready=False, reasons=("stuck",))
    well = Health(live=True, ready=True)
    assert health_of_all([("a", well), ("b", well)]) == well
    assert health_of_all([("a", well), ("b", ill)]) == Health(live=False, ready=False, reasons=("b: stuck",))


SECOND = timedelta(seconds=1)


def info(succeeded, failed):
    return PressureInfo(active=1, succeeded=succeeded, failed=failed)


def delays(hook, *counts):
    """The delays of the hook for these totals of successes and failures."""
    return [hook(info({"a": good}, {"a": bad})) for good, bad in counts]


@pytest.mark.parametrize(("options", "counts", "expected"), [
    (
        {"base": 0.1, "factor": 2, "step": 0.1, "max": 1},
        [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (3, 3), (4, 3)],
        [0, 0.1, 0.2, 0.4, 0.3, 0.2, 0.1, 0],
    ),
    # The ceiling holds.
    ({"base": 0.1, "factor": 10, "max": 0.5}, [(0, 0), (0, 1), (0, 2), (0, 3)], [0, 0.1, 0.5, 0.5]),
    # The floor holds, and is where it starts.
    ({"min": 0.05, "base": 0.1, "step": 0.03}, [(0, 0), (0, 1), (1, 1), (2, 1)], [0.05, 0.1, 0.07, 0.05]),
    ({"max_fail_rate": 0.5}, [(9, 1), (9, 11)], [0, 0.1]),  # one in ten is fine, ten in ten are not
    ({"max_fail_rate": 0.5}, [(1, 1), (2, 3)], [0, 0.1]),  # exactly as many as allowed are fine
    ({}, [(0, 1), (0, 1), (0, 1)], [0.1, 0, 0]),  # nothing ended meanwhile: faster again
    ({}, [(50, 10), (3, 0), (3, 1)], [0.1, 0, 0.1]),  # counts that begin anew are taken as they are
    ({"base": 1, "max": 0.5}, [(0, 1)], [0.5]),
    ({"base": 2, "factor": 3}, [(0, 1), (0, 2), (1, 2), (2, 2)], [2, 6, 4, 2]),  # the step is the base
    ({"base": 0, "min": 1, "max": 3}, [(0, 1), (0, 2), (0, 3)], [2, 3, 3]),
    (
        {"base": SECOND, "step": 2 * SECOND, "max": 60 * SECOND, "min": 0 * SECOND},
        [(0, 1), (0, 2), (0, 3), (1, 3)], [1, 2, 4, 2],
    ),
])  # fmt: skip
def test_delays_by_example(options, counts, expected):
    assert delays(adaptive_delay(**options), *counts) == expected


@pytest.mark.parametrize("types", [["watched"], ("watched", "absent"), {"watched"}, "watched"])
def test_only_the_watched_types_count(types):
    hook = adaptive_delay(types=types)
    assert hook(info({}, {"other": 9})) == 0
    assert hook(info({"other": 99}, {"other": 9, "watched": 1})) == 0.1


def test_all_types_count_together_without_a_choice():
    hook = adaptive_delay(max_fail_rate=0.5)
    assert [hook(info({"a": 5}, {"b": failed})) for failed in (5, 6)] == [0, 0.1]


def test_two_hooks_share_no_counts_and_take_any_object_with_counts():
    one, other = adaptive_delay(), adaptive_delay()
    delays(one, (0, 5))
    assert delays(other, (0, 0)) == [0]
    assert adaptive_delay()(SimpleNamespace(active=0, succeeded={}, failed={"a": 1})) == 0.1


hundred, count = st.floats(0, 100), st.integers(0, 99)


@given(hundred, st.floats(1, 1e6), hundred, st.lists(st.tuples(count, count)))
def test_the_delay_stays_within_its_bounds(base, factor, step, counts):
    hook = adaptive_delay(base=base, factor=factor, step=step, min=1, max=20)
    assert all(1 <= delay <= 20 for delay in delays(hook, *counts))


@pytest.mark.parametrize(("options", "matter"), [
    ({"base": -1}, "expected base to be 0 seconds or more, got: -1"),
    ({"step": math.nan}, "expected step to be 0 seconds or more, got: nan"),
    ({"max": math.inf}, "expected max to be 0 seconds or more, got: inf"),
    ({"min": 5, "max": 4}, "expected min to be at most max, got: min=5, max=4"),
    ({"factor": 0.5}, "expected factor to be a number, 1 or more, got: 0.5"),
    ({"factor": True}, "expected factor to be a number"),
    ({"max_fail_rate": 1.5}, "expected max_fail_rate to be between 0 and 1, got: 1.5"),
])  # fmt: skip
def test_values_that_cannot_be_used_are_refused(options, matter):
    with pytest.raises(ValueError, match=matter):
        adaptive_delay(**options)


@pytest.mark.parametrize(("since", "every", "looks", "reported"), [
    (5, None, [5, 14.9, 15, 15.1, 9999], [None, None, 10, None, None]),  # once after ten seconds
    (0, 3, [10, 12.9, 13, 15.9, 16], [10, None, 13, None, 16]),  # again every three seconds
    (0, 3, [50, 50, 52.9, 53], [50, None, None, 53]),  # a late look counts from then
])  # fmt: skip
def test_when_a_backlog_is_reported(since, every, looks, reported):
    episode = Episode(since=since, after=10, every=every)
    assert episode.due_at == since + 10
    assert [episode.reported(moment) for moment in looks] == reported
    assert episode.due_at == (None if every is None else looks[-1] + every)


def test_a_report_is_a_value():
    info = BacklogInfo(active=1, queued=None, behind_for=2.0)
    assert info == BacklogInfo(active=1, queued=None, behind_for=2.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.active = 2
