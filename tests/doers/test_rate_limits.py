"""How ``rate_limited`` is called, in real threads too, and where its counts are kept."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from django_ayework import doers
from django_ayework.doers.rate_limited import (
    LONGEST_PAUSE,
    RETRY_FLOOR,
    Limits,
    LocalLimiter,
    RateLimited,
    SharedLimiter,
)
from django_ayework.models import StoreEntry
from django_ayework.ports.kv.base import LocalStore
from django_ayework.rules.rates import Denied, FixedWindow
from tests.architecture.sources import ROOT
from tests.doers.rate_limiting import Broken

HOUR = 3600.0


@pytest.mark.parametrize("window", [HOUR, timedelta(hours=1)])
def test_it_runs_as_many_as_the_limit_and_holds_the_rest(stage, window):
    doer = doers.rate_limited(2, window)
    for name in "abc":
        doer.submit(stage.task(name))
    assert sorted(stage.wait_for(2)) == ["a", "b"]
    assert doer.available() == 1


def test_an_inner_doer_for_one_runs_one_at_a_time(stage):
    doer = doers.rate_limited(100, HOUR, inner=doers.balanced(1))
    names = list("abcdefgh")
    for name in names:
        doer.submit(stage.task(name))
    stage.end(*names)
    doer.drained()
    assert stage.started == names
    assert stage.peak == 1


@pytest.mark.parametrize("algorithm", ["fixed", "sliding", "token"])
def test_held_tasks_run_when_their_time_has_come(algorithm):
    doer, ran = doers.rate_limited(3, 0.06, algorithm), []
    for number in range(7):
        doer.submit(lambda number=number: ran.append(number))
    doer.drained()
    assert Counter(ran) == Counter(range(7))


@pytest.mark.parametrize("fairness_limit", [1, (1, HOUR), (1, timedelta(hours=1))])
def test_labels_are_limited_by_a_number_or_a_pair(stage, fairness_limit):
    doer = doers.rate_limited(100, HOUR, fairness_limit=fairness_limit)
    for name in ("a1", "a2", "b1", "b2", "c1"):
        doer.submit(stage.task(name), fairness=name[0])
    assert sorted(stage.wait_for(3)) == ["a1", "b1", "c1"]
    stage.end("a1", "b1", "c1")
    assert doer.available() == 98


def test_a_shared_limit_holds_for_all_that_share_it(stage, settings):
    settings.AYEWORK = {"STORE": LocalStore()}
    one = doers.rate_limited(2, HOUR, shared=True, key="mail")
    other = doers.rate_limited(2, HOUR, shared=True, key="mail")
    for name in ("a", "b"):
        one.submit(stage.task(name))
    assert sorted(stage.wait_for(2)) == ["a", "b"]
    other.submit(stage.task("c"))
    beside = doers.rate_limited(2, HOUR, shared=True, key="sms")
    beside.submit(stage.task("d"))
    assert stage.wait_for(3)[2] == "d"


@pytest.mark.django_db(transaction=True)
def test_a_shared_limit_is_kept_in_the_database(settings):
    settings.AYEWORK = {}
    doer = doers.rate_limited(5, HOUR, shared=True, fairness_limit=5)
    for _ in range(5):
        doer.submit(lambda: None, fairness="acme")
    doer.drained()
    assert StoreEntry.objects.filter(key__startswith="kv:rate:").count() == 2


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("given", "kind", "matter"),
    [
        ({"limit": 0}, ValueError, "limit to be a whole number, 1 or more, got: 0"),
        ({"window": 0}, ValueError, "window to be more than 0 seconds, got: 0"),
        ({"algorithm": "fixd"}, ValueError, "algorithm to be .* got: 'fixd'. Did you mean 'fixed'"),
        ({"key": 5}, TypeError, "key to be a text or a function of the task's hints, got: 5"),
        ({"inner": 5}, TypeError, "inner to be a doer, got: 5"),
        ({"fairness_limit": 0}, ValueError, "limit to be a whole number, 1 or more, got: 0"),
        ({"fairness_limit": (1, 0)}, ValueError, "window to be more than 0 seconds, got: 0"),
        ({"fairness_limit": (1, 2, 3)}, ValueError, "number or a pair of number and window"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(shared, given, kind, matter):
    with pytest.raises(kind, match=f"expected .*{matter}"):
        doers.rate_limited(**{"limit": 1, "window": 1, **given}, shared=shared)


def test_doers_can_be_built_while_settings_are_read_and_run_without_django():
    source = """
import logging, sys, threading
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from django_ayework import doers, hooks
doer = doers.rate_limited(2, 60, inner=doers.balanced(2))
fleet = doers.rate_limited(2, 60, shared=True)
print(threading.active_count(), [name for name in sys.modules if name.split(".")[0] == "django"])
doer.submit(lambda: print("ran"))
doer.drained()
"""
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.stderr, done.stdout.splitlines()) == ("", ["1 []", "ran"])


@pytest.mark.parametrize("of_label", [False, True])
def test_an_error_of_the_store_is_reported_and_costs_the_floor_but_no_task(kit, reported, of_label):
    limiter, overall = Broken(1), LocalLimiter(partial(FixedWindow, 10, 1), kit.time.now)
    doer = kit.of(Limits(overall, limiter, None) if of_label else Limits(limiter, None, None))
    for round in (1, 2):
        limiter.times = 1  # a success in between brings back the floor
        kit.submit(doer, *"ab", fairness=f"{round}")
        assert kit.run() == []
        assert reported == [("no store", "queue")] * round
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


def test_a_count_that_others_got_ahead_of_is_tried_again_after_the_floor(kit):
    class Contended:
        def hit(self, name):
            return Denied(0.0)

        peek = hit

    doer = kit.of(Limits(Contended(), None, None))
    kit.submit(doer, "a")
    kit.run()
    assert kit.time.timers[0].delay == RETRY_FLOOR


@pytest.fixture
def fleet(kit, settings):
    """Doers of several processes, which share a Store."""
    settings.AYEWORK = {"STORE": LocalStore()}

    def doer(limit, window, key=None, per_label=None) -> RateLimited:
        overall = SharedLimiter(partial(FixedWindow, limit, window))
        labels = SharedLimiter(partial(FixedWindow, *per_label)) if per_label else None
        return kit.of(Limits(overall, labels, key), limit)

    return doer


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


def limiter(time, limit=1, window=10.0) -> LocalLimiter:
    return LocalLimiter(partial(FixedWindow, limit, window), time.now)


def test_names_that_nobody_asks_for_are_forgotten(time):
    counts = limiter(time)
    for number in range(1000):
        counts.hit((str(number),))
        time.advance(1)
    assert len(counts) < 50


def test_a_count_that_still_matters_is_never_forgotten(time):
    counts = limiter(time, limit=2, window=10)
    allowed = 0
    time.advance(5)  # so that no window ends when something is forgotten
    for _ in range(400):
        allowed += bool(counts.hit(("a",)))
        time.advance(0.25)
    assert allowed == 20  # two in each of the ten windows
