"""Counts of a rate-limited doer that a store keeps: it may not be read, and a fleet shares it."""

from __future__ import annotations

from functools import partial

import pytest

from django_ayework.doers.rate_limited import (
    LONGEST_PAUSE,
    RETRY_FLOOR,
    Limits,
    LocalLimiter,
    RateLimited,
    SharedLimiter,
)
from django_ayework.ports.kv.local import LocalStore
from django_ayework.rules.rates import Denied, FixedWindow
from tests.doers.rate_limiting import Broken

# Limits that cannot be read


def test_an_error_of_the_store_is_reported_and_costs_the_floor_but_no_task(kit, reported):
    doer = kit.of(Limits(Broken(1), None, None))
    kit.submit(doer, *"ab")
    assert kit.run() == []
    assert reported == [("no store", "queue")]
    assert kit.time.timers[0].delay == RETRY_FLOOR

    assert kit.run(RETRY_FLOOR) == ["a", "b"]


def test_while_errors_go_on_it_asks_less_and_less_often(kit, reported):
    doer = kit.of(Limits(Broken(20), None, None))
    kit.submit(doer, "a")
    delays = []
    for _ in range(10):
        kit.run(kit.time.timers[0].delay)
        delays.append(kit.time.timers[0].delay)

    assert delays == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])
    assert max(delays) == LONGEST_PAUSE


def test_after_a_success_it_begins_with_the_floor_again(kit, reported):
    limiter = Broken(3)
    doer = kit.of(Limits(limiter, None, None))
    kit.submit(doer, "a")
    kit.run(10)
    assert kit.ran == ["a"]
    limiter.times = 1
    kit.submit(doer, "b")
    kit.run()

    assert kit.time.timers[0].delay == RETRY_FLOOR


def test_a_label_whose_count_cannot_be_read_is_no_license_to_start(kit, reported):
    overall = LocalLimiter(partial(FixedWindow, 10, 1), kit.time.now)
    doer = kit.of(Limits(overall, Broken(1), None))
    kit.submit(doer, "a")

    assert kit.run() == []
    assert kit.run(RETRY_FLOOR) == ["a"]


def test_a_count_that_others_got_ahead_of_is_tried_again_after_the_floor(kit):
    class Contended:
        def hit(self, name):
            return Denied(0.0)

        peek = hit

    doer = kit.of(Limits(Contended(), None, None))
    kit.submit(doer, "a")
    kit.run()

    assert kit.time.timers[0].delay == RETRY_FLOOR


# The fleet


@pytest.fixture
def fleet(kit, settings):
    """Doers of several processes, which share a Store."""
    settings.AYEWORK = {"STORE": LocalStore()}

    def doer(limit, window, key=None, per_label=None) -> RateLimited:
        overall = SharedLimiter(partial(FixedWindow, limit, window))
        labels = SharedLimiter(partial(FixedWindow, *per_label)) if per_label else None
        return kit.of(Limits(overall, labels, key), limit)

    return doer


def test_doers_that_share_a_limit_stay_within_it_together(kit, fleet):
    one, other = fleet(3, 3600), fleet(3, 3600)
    kit.submit(one, *"ab")
    kit.submit(other, *"cde")

    assert sorted(kit.run()) == ["a", "b", "c"]


def test_doers_with_keys_of_their_own_share_nothing(kit, fleet):
    for key in ("mail", "sms", None):
        kit.submit(fleet(1, 3600, key, per_label=(1, 3600)), f"{key}", fairness="acme")

    assert sorted(kit.run()) == ["None", "mail", "sms"]


def test_labels_are_counted_for_the_fleet(kit, fleet):
    one, other = fleet(9, 3600, per_label=(1, 3600)), fleet(9, 3600, per_label=(1, 3600))
    kit.submit(one, "a1", fairness="a")
    kit.submit(other, "a2", fairness="a")
    kit.submit(other, "b1", fairness="b")

    assert kit.run() == ["a1", "b1"]
