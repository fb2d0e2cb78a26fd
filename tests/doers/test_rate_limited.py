"""Rate-limited doers: on a clock that is moved by hand, in real threads, and with counts that are shared."""

import subprocess
import sys
from asyncio import CancelledError
from collections import Counter
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import pytest

from django_ayework import doers
from django_ayework.doers.rate_limited import LONGEST_PAUSE, RETRY_FLOOR, Limits, LocalLimiter, SharedLimiter
from django_ayework.models import StoreEntry
from django_ayework.ports.kv import LocalStore
from django_ayework.rules.rates import Denied, FixedWindow
from tests.architecture.sources import ROOT
from tests.doers.kit import Broken, Holding, Inline

HOUR = 3600.0
#: A library that works with asyncio raises CancelledError, which is no Exception.
each_kind = pytest.mark.parametrize("kind", [ConnectionError, CancelledError])


@pytest.mark.parametrize("window", [1, 0.06])
def test_tasks_beyond_the_limit_wait_for_the_next_window(kit, window):
    doer = kit.doer(limit=2, window=window)
    kit.submit(doer, *"abcde")
    assert kit.run() == ["a", "b"]
    assert (len(kit.time.timers), kit.delay) == (1, window)
    assert [kit.run(share * window) for share in (0.9, 0.1, 1)] == [[], ["c", "d"], ["e"]]
    assert kit.delay is None, "nothing waits"


def test_the_oldest_is_first_however_late_it_came(kit):
    doer = kit.doer(limit=1)
    kit.submit(doer, "first")
    kit.run()
    for age in (1, 3, 2):
        kit.submit(doer, str(age), created_at=kit.time.now() - timedelta(seconds=age))
    assert kit.run(3) == ["3", "2", "1"]


def test_submitting_counts_nothing_and_starts_nothing_in_the_callers_thread(kit):
    kit.submit(kit.of(Limits(Broken(99), None, None)), "a")
    assert (kit.ran, kit.delay) == ([], 0)


class Voidable:
    """A task that may become void, and notes that it was called."""

    def __init__(self, ran: list[str]) -> None:
        self.is_void = False
        self.ran = ran

    def __call__(self) -> None:
        self.ran.append("void" if self.is_void else "task")


@pytest.mark.parametrize("levels", [1, 2])
def test_a_void_task_is_called_and_uses_up_no_start(kit, levels):
    doer = kit.doer(limit=2, window=3600)
    if levels == 2:
        doer = kit.doer(limit=9, window=60, inner=doer)
    waiting = [Voidable(kit.ran) for _ in range(4)]
    for task in waiting:
        doer.submit(task)
    assert kit.run() == ["task"] * 2
    assert doer.available() == 0
    waiting[2].is_void = waiting[3].is_void = True
    assert doer.available() == 2
    assert kit.run() == ["void"] * 2
    assert doer.available() == 2
    kit.submit(doer, "a", "b", "c")
    assert kit.run(3600) == ["a", "b"]


def test_available_is_the_limit_less_what_waits(kit):
    doer = kit.doer(limit=3)
    found = []
    for names in ("", "ab", "cde"):
        kit.submit(doer, *names)
        found.append(doer.available())
    kit.run()
    assert [*found, doer.available()] == [3, 1, 0, 1], "two of five still wait"
    within = kit.doer(limit=9, inner=Holding(room=2))
    assert within.available() == 2
    kit.submit(within, "a")
    kit.run()
    assert within.available() == 1


@pytest.mark.parametrize(
    ("limit", "names", "rounds"),
    [
        (100, ("a1", "a2", "b1", "a3", "c1", "b2"), [["a1", "b1", "c1"], ["a2", "b2"], ["a3"]]),
        (2, ("a1", "a2", "b1", "c1"), [["a1", "b1"], ["a2", "c1"]]),
        (100, ("1", "2", "3"), [["1"], ["2"], ["3"]]),
    ],
    ids=["limit of labels", "both limits", "no label is a label"],
)
def test_a_label_beyond_its_limit_holds_up_no_other(kit, limit, names, rounds):
    doer = kit.doer(limit=limit, per_label=(1, 1))
    for name in names:
        kit.submit(doer, name, fairness=name[:-1] or None)
    assert [kit.run(seconds) for seconds in (0, 1, 1)[: len(rounds)]] == rounds


def test_a_label_does_not_pay_for_a_start_that_does_not_follow(kit):
    doer = kit.doer(limit=1, window=1, per_label=(1, 10))
    for name in "xa":
        kit.submit(doer, name, fairness=name)
    assert (kit.run(), kit.run(1)) == (["x"], ["a"]), "not ten seconds later"


@pytest.mark.parametrize(
    ("limit", "per_label", "names"),
    [(100, 1, ["label", "key", "label"]), (1, None, ["key", "key"])],
    ids=["label", "key"],
)
def test_what_is_beyond_its_limit_is_asked_about_once_in_a_round(kit, limit, per_label, names):
    asked = []

    class Asked(LocalLimiter):
        def hit(self, name):
            asked.append(name)
            return super().hit(name)

    overall, labels = (each and Asked(partial(FixedWindow, each, 10)) for each in (limit, per_label))
    kit.submit(kit.of(Limits(overall, labels, None)), *"abcdefgh", fairness="acme")
    kit.run()
    assert [name[0] for name in asked] == names


def test_labels_keep_their_counts_after_a_long_time(kit):
    doer = kit.doer(limit=100, per_label=(1, 10))
    kit.run(1000)
    for name in ("x1", "y1", "x2", "y2"):
        kit.submit(doer, name, fairness=name[0])
    assert [kit.run(seconds) for seconds in (0, 5, 5)] == [["x1", "y1"], [], ["x2", "y2"]]


@pytest.mark.parametrize("as_text", [True, False])
def test_each_key_has_a_count_of_its_own_and_holds_up_no_other(kit, as_text):
    doer = kit.doer(limit=1, key=lambda hints: str(hints.priority) if as_text else hints.priority)
    kit.submit(doer, "a1", "a2")
    kit.submit(doer, "b1", priority=1)
    kit.submit(doer, "c1", priority=2)
    assert (kit.run(), kit.run(1)) == (["a1", "b1", "c1"], ["a2"])


@each_kind
def test_a_key_function_that_raises_is_reported_once_and_loses_no_task(kit, reported, kind):
    def key(hints) -> str:
        raise kind("no key")

    kit.submit(kit.doer(limit=1, key=key), "a", "b")
    assert kit.run(5) == ["a", "b"]
    assert reported == [("no key", "queue")] * 2


def test_the_timer_is_set_for_the_soonest_that_may_start_and_has_a_floor(kit):
    doer = kit.doer(limit=100, per_label=(1, 10))
    kit.submit(doer, "a1", "a2", fairness="a")
    kit.run(4)
    kit.submit(doer, "b1", "b2", fairness="b")
    assert kit.delay == 0, "a new task is considered at once"
    assert (kit.run(), kit.delay) == (["b1"], 6)
    kit.time.timers.clear()
    kit.submit(kit.doer(limit=1, window=0.001), *"abc")
    kit.run()
    assert kit.delay == RETRY_FLOOR == 0.05


class TestInnerDoers:
    def test_hints_are_passed_on_and_drained_waits_for_it_too(self, kit):
        inner, moment, waited = Inline(), kit.time.now(), []
        inner.drained = lambda: waited.append(list(kit.ran))
        doer = kit.doer(inner=inner)
        kit.submit(doer, "a", fairness="acme", priority=7, created_at=moment)
        kit.run()
        doer.drained()
        assert (inner.submitted, waited) == ([("acme", 7, moment)], [["a"]])

    def test_a_full_one_is_given_nothing_more_until_it_has_room(self, kit):
        inner, rooms = Holding(room=1), []
        doer = kit.doer(limit=2, window=100, inner=inner)
        kit.submit(doer, *"abc")
        kit.run(10)
        assert len(inner.tasks) == 1
        doer.on_room(lambda: rooms.append(doer.available()))
        inner.run_one()
        assert rooms, "its room is passed on"
        assert kit.delay == 0
        kit.run(10)
        assert (len(inner.tasks), kit.ran) == (1, ["a"])
        assert doer._load() == (1, 1), "a start counts only once it follows"

    def test_one_that_tells_nothing_is_asked_every_so_often(self, kit):
        inner = Inline(room=0)
        kit.submit(kit.doer(limit=10, inner=inner), "a")
        kit.run()
        assert kit.delay == RETRY_FLOOR
        inner.room = 1
        assert kit.run(RETRY_FLOOR) == ["a"]

    def test_a_label_that_waits_for_long_does_not_keep_it_from_being_asked_for_room(self, kit):
        inner = Holding(room=2)
        doer = kit.doer(limit=10, per_label=(1, HOUR), inner=inner)
        for name in ("a1", "a2", "b1", "c1"):
            kit.submit(doer, name, fairness=name[0])
        kit.run()
        assert (len(inner.tasks), kit.delay) == (2, RETRY_FLOOR)

    @each_kind
    def test_one_that_refuses_a_task_leaves_it_waiting(self, kit, reported, kind):
        class Refusing(Inline):
            def submit(self, task, *hints) -> None:
                if not reported:
                    raise kind("no")
                super().submit(task, *hints)

        doer = kit.doer(limit=10, inner=Refusing())
        kit.submit(doer, *"ab")
        kit.run()
        assert (reported, doer._load()) == ([("no", "queue")], (0, 2))
        assert kit.run(RETRY_FLOOR) == ["a", "b"]


class TestErrorsOfTheStore:
    @each_kind
    @pytest.mark.parametrize("of_label", [False, True])
    def test_one_is_reported_and_costs_the_floor_but_no_task(self, kit, reported, of_label, kind):
        limiter = Broken(1, kind)
        doer = kit.of(Limits(kit.limiter(10, 1), limiter, None) if of_label else Limits(limiter, None, None))
        for round in (1, 2):
            limiter.times = 1  # a success in between brings back the floor
            kit.submit(doer, *"ab", fairness=f"{round}")
            assert kit.run() == []
            assert reported == [("no store", "queue")] * round
            assert kit.delay == RETRY_FLOOR
            assert kit.run(RETRY_FLOOR) == ["a", "b"]

    def test_while_they_go_on_it_asks_less_and_less_often(self, kit, reported):
        kit.submit(kit.of(Limits(Broken(20), None, None)), "a")
        delays = []
        for _ in range(10):
            kit.run(kit.delay)
            delays.append(kit.delay)
        assert delays == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])
        assert max(delays) == LONGEST_PAUSE

    def test_a_count_that_others_got_ahead_of_is_tried_again_after_the_floor(self, kit):
        contended = SimpleNamespace(hit=lambda name: Denied(0.0), peek=lambda name: Denied(0.0))
        kit.submit(kit.of(Limits(contended, None, None)), "a")
        kit.run()
        assert kit.delay == RETRY_FLOOR


def test_doers_of_a_fleet_share_the_counts_of_labels_and_of_one_key(kit, settings):
    """As doers of several processes, which share a Store."""
    settings.AYEWORK = {"STORE": LocalStore()}

    def fleet(limit, key=None):
        labels = SharedLimiter(partial(FixedWindow, 1, HOUR))
        return kit.of(Limits(SharedLimiter(partial(FixedWindow, limit, HOUR)), labels, key), limit)

    for key in ("mail", "sms", None):
        kit.submit(fleet(1, key), f"{key}", fairness="acme")
    assert sorted(kit.run()) == ["None", "mail", "sms"]
    settings.AYEWORK = {"STORE": LocalStore()}
    one, other = fleet(9), fleet(9)
    kit.submit(one, "a1", fairness="a")
    kit.submit(other, "a2", fairness="a")
    kit.submit(other, "b1", fairness="b")
    assert kit.run() == ["a1", "b1"]


def test_names_that_nobody_asks_for_are_forgotten_and_counts_that_still_matter_never(kit):
    counts = kit.limiter(1, 10.0)
    for number in range(1000):
        counts.hit((str(number),))
        kit.time.advance(1)
    assert len(counts) < 50
    counts, allowed = kit.limiter(2, 10), 0
    kit.time.advance(5)  # so that no window ends when something is forgotten
    for _ in range(400):
        allowed += bool(counts.hit(("a",)))
        kit.time.advance(0.25)
    assert allowed == 20  # two in each of the ten windows


class TestInRealThreads:
    @pytest.mark.parametrize(
        ("options", "names", "starting", "left"),
        [
            ({"limit": 2, "window": HOUR}, "a b c", "a b", 1),
            ({"limit": 2, "window": timedelta(hours=1)}, "a b c", "a b", 1),
            ({"fairness_limit": 1}, "a1 a2 b1 b2 c1", "a1 b1 c1", 98),
            ({"fairness_limit": (1, HOUR)}, "a1 a2 b1 b2 c1", "a1 b1 c1", 98),
            ({"fairness_limit": (1, timedelta(hours=1))}, "a1 a2 b1 b2 c1", "a1 b1 c1", 98),
        ],
    )
    def test_as_many_as_the_limits_start_and_the_rest_is_held(self, stage, options, names, starting, left):
        doer = doers.rate_limited(**{"limit": 100, "window": HOUR} | options)
        for name in names.split():
            doer.submit(stage.task(name), fairness=name[0])
        assert sorted(stage.wait_for(len(starting.split()))) == starting.split()
        stage.end_all()
        assert doer.available() == left

    def test_an_inner_doer_for_one_runs_one_at_a_time(self, stage):
        doer = doers.rate_limited(100, HOUR, inner=doers.balanced(1))
        for name in "abcdefgh":
            doer.submit(stage.task(name))
        stage.end(*"abcdefgh")
        doer.drained()
        assert (stage.started, stage.peak) == (list("abcdefgh"), 1)

    @pytest.mark.parametrize("algorithm", ["fixed", "sliding", "token"])
    def test_held_tasks_run_when_their_time_has_come(self, algorithm):
        doer, ran = doers.rate_limited(3, 0.06, algorithm), []
        for number in range(7):
            doer.submit(partial(ran.append, number))
        doer.drained()
        assert Counter(ran) == Counter(range(7))

    def test_a_shared_limit_holds_for_all_that_share_it(self, stage, settings):
        settings.AYEWORK = {"STORE": LocalStore()}
        limits = {name: doers.rate_limited(2, HOUR, shared=True, key=name) for name in ("mail", "sms")}
        for name in ("a", "b"):
            limits["mail"].submit(stage.task(name))
        assert sorted(stage.wait_for(2)) == ["a", "b"]
        doers.rate_limited(2, HOUR, shared=True, key="mail").submit(stage.task("c"))
        limits["sms"].submit(stage.task("d"))
        assert stage.wait_for(3)[2] == "d"

    @pytest.mark.django_db(transaction=True)
    def test_a_shared_limit_is_kept_in_the_database(self, settings):
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


SOURCE = """
import logging, sys, threading
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from django_ayework import doers, hooks
doer = doers.rate_limited(2, 60, inner=doers.balanced(2))
fleet = doers.rate_limited(2, 60, shared=True)
print(threading.active_count(), [name for name in sys.modules if name.split(".")[0] == "django"])
doer.submit(lambda: print("ran"))
doer.drained()
"""


def test_doers_can_be_built_while_settings_are_read_and_run_without_django():
    run = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, timeout=60)
    done = run([sys.executable, "-c", SOURCE])
    assert (done.stderr, done.stdout.splitlines()) == ("", ["1 []", "ran"])
