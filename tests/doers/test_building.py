"""``rate_limited`` as users call it: what it accepts, and that it works in real threads."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import timedelta

import pytest

from django_ayework import doers
from django_ayework.models import StoreEntry
from django_ayework.ports.kv.local import LocalStore
from tests.architecture.sources import ROOT

HOUR = 3600.0


def test_it_runs_as_many_as_the_limit_and_holds_the_rest(stage):
    doer = doers.rate_limited(2, HOUR)
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


def test_a_window_may_be_a_timedelta(stage):
    doer = doers.rate_limited(1, timedelta(hours=1))
    doer.submit(stage.task("a"))
    assert stage.wait_for(1) == ["a"]


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
