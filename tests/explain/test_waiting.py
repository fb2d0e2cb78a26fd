"""A work that has not begun: what holds it, when it is due, which works and types go first."""

import re
from datetime import timedelta

import pytest

from django_ayework import Count, Retry, cancel, dependency, enqueue, limit, pause, registry, retry
from django_ayework import work as describe
from django_ayework.flow import explain
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Waiter, Work
from django_ayework.store.lanes import works_ahead
from django_ayework.store.rows import find_row
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from django_ayework.testing.running import run_commit_callbacks
from tests.app.works import add, fail
from tests.chains.kit import count
from tests.explain.kit import DISTANT, MOMENT, defer, facts, give_up, one, why

# --- a gate that has not opened -------------------------------------------------------------------------


def gate(on, condition="all-success", **options):
    """A gate that was rechecked."""
    handle = enqueue(dependency(on, [one()], condition, **options))
    run_commit_callbacks()
    return handle


def test_what_a_gate_waits_for():
    for id in "ab":
        enqueue(one(), id=id)
    gate(["another"])
    waiting = gate(["a", "b", "c"])
    drain(limit=1)
    assert why(waiting, "waits_for_works", "not_queued") == (
        "It waits until all of its 3 works have succeeded: 1 succeeded, 0 ended without success, 2 open "
        "– b (pending), c (does not exist (yet)). It opens only once c is enqueued and has ended. If that "
        "was pruned or rolled back, cancel this gate, or complete it by hand to open it."
    )
    expected = {"condition": '"all-success"', "total": 3, "succeeded": 1, "missed": 0}
    expected["open"] = [{"id": "b", "status": "pending"}, {"id": "c", "status": None}]
    assert facts(waiting, "waits_for_works") == expected


@pytest.mark.parametrize(
    ("on", "condition", "text"),
    [
        ("a", "all-success", "until its one work has succeeded:"),
        ("ab", "all-done", "until all of its 2 works have ended:"),
        ("ab", Count(1), "until 1 of 2 works have ended:"),
        ("ab", Count(2, of="success"), "until 2 of 2 works have succeeded:"),
        ("abcdefgh", "all-success", "d (does not exist (yet)), e (does not exist (yet)) and 3 more."),
    ],
    ids=["one", "all done", "count", "count of success", "many works"],
)
def test_conditions_in_words(on, condition, text):
    not_all_needed = condition == Count(1)
    assert text in why(gate([*on], condition), "waits_for_works", *[] if not_all_needed else ["not_queued"])


def test_a_condition_or_a_waiter_that_cannot_be_read():
    waiting = gate(["a"])
    Waiter.objects.update(condition='"all-broken"')
    text = 'for 1 work on a condition that cannot be read, "all-broken":'
    assert text in why(waiting, "waits_for_works")
    assert "can never open: cancel it" in why(WorkFactory(status="blocked"), "no_waiter")


def test_a_gate_that_can_open_only_if_works_are_retried():
    waiting, _ = gate(["a", "b"], on_unmet="wait"), gate(["other"], on_unmet="wait")
    for id in ("a", "other"):
        enqueue(give_up(), id=id)
    drain()
    text = 'It can open only if works are retried, and waits for that (on_unmet="wait"); retry a (dead).'
    assert text in why(waiting, "waits_for_works", "cannot_be_met", "not_queued")
    assert facts(waiting, "cannot_be_met") == {"members": ["a"]}


def test_a_recheck_is_pending_and_the_timeout_of_a_gate_comes():
    waiting = gate(["a"], timeout=60)
    assert "It expires unless it opens by " in why(waiting, "waits_for_works", "deadline")
    Waiter.objects.update(recheck=True)
    why(waiting, "waits_for_works", "recheck", "deadline", "no_worker")
    WorkerProcessFactory()
    rechecked = why(waiting, "waits_for_works", "recheck", "deadline")
    assert "A worker rechecks it at its next poll" in rechecked
    Waiter.objects.update(recheck=False)
    time_travel(61)
    why(waiting, "waits_for_works", "past_deadline", "no_worker")
    WorkerProcessFactory(seen_at=now())
    why(waiting, "waits_for_works", "past_deadline")


def test_a_work_with_blockers_names_the_chains_and_how_their_last_works_stand():
    chain = enqueue(count(n=0, until=2))
    handle = enqueue(add(a=1, b=1), blockers=[chain])
    drain(limit=1)
    assert f"{chain.id} (pending)" in why(handle, "waits_for_works")


# --- a work whose moment has not come, or has just come -------------------------------------------------


def test_it_is_due_later_and_has_a_deadline():
    handle = enqueue(one(), delay=300, expires=3600)
    text = rf"It is due at {MOMENT} \(in (5 min|4 min 59 s)\)\. It expires unless it starts by "
    assert re.match(text, why(handle, "not_due", "deadline"))
    assert 290 < facts(handle, "not_due")["seconds"] <= 300
    assert facts(handle, "deadline") == {"deadline": handle.state().deadline}


@pytest.mark.parametrize("passed", [0, 120])
def test_it_is_due_after_its_deadline_and_expires_then(passed):
    handle = enqueue(one(), delay=300, expires=60)
    time_travel(passed)
    drain()
    assert "is before that: it expires when it is due" in why(handle, "not_due", "expires_when_due")
    assert facts(handle, "expires_when_due") == {"deadline": handle.state().deadline}
    time_travel(300)
    drain()
    assert handle.state().reason == "expired"


def test_its_moment_has_come():
    handle = enqueue(one(), delay=60)
    time_travel(90)
    why(handle, "due", "no_worker")
    WorkerProcessFactory(queues="mail", seen_at=now())
    why(handle, "due", "queue_not_served")
    WorkerProcessFactory(seen_at=now())
    text = rf"It was due at {MOMENT} \(3\d s ago\); a worker makes it pending at its next poll\."
    assert re.fullmatch(text, why(handle, "due"))


def test_a_retry_after_a_failure():
    handle = enqueue(fail(message="no\nluck"), retry=Retry(attempts=5, base=600, max=600, jitter=0))
    drain(raises=False)
    text = ". It is tried again, because attempt 1 of 5 failed: RuntimeError: no."
    assert text in why(handle, "not_due", "retrying")
    expected = {"attempt": 1, "attempts": 5, "error": "RuntimeError: no\nluck", "lost": False}
    assert facts(handle, "retrying") == expected
    time_travel(601)
    drain(raises=False)
    assert "attempt 2 of 5 failed" in why(handle, "not_due", "retrying")


def test_a_deferral():
    handle = enqueue(defer(seconds=600))
    drain()
    text = why(handle, "not_due", "deferred")
    assert re.search(rf"\. It was deferred to {DISTANT}", text)
    assert text.endswith("that used no attempt.")


def test_a_work_parked_because_its_type_is_unknown(settings, monkeypatch):
    settings.AYEWORK = {"UNKNOWN_TYPE_GRACE": 600}
    work = WorkFactory(type="gone.work")
    drain()
    text = why(work, "not_due", "parked")
    assert "none knew its type 'gone.work'." in text
    assert re.search(rf"Without one, it dies at {MOMENT} \((in 10 min|in 9 min 5\d s)\)\.", text)
    found = facts(work, "parked")
    assert (found["until"] - found["since"], found["type"]) == (timedelta(minutes=10), "gone.work")
    monkeypatch.setattr(registry, "_declared", {**registry._declared})
    describe(name="gone.work")(lambda: None)
    text = why(work, "not_due", "parked")
    advice = "call that function in works.py, or write the handler at the top level, and restart the workers."
    assert advice in text
    Work.objects.filter(id=work.id).update(type=add.name)
    text = why(work, "not_due", "parked")
    assert "This process knows the type: restart the workers, so that they load the same code." in text
    assert "Did you mean" not in text


TYPE = "controls.plain"


# --- a work that is due ---------------------------------------------------------------------------------


def test_no_worker_is_alive():
    WorkerProcessFactory(stopped_at=now())
    WorkerProcessFactory(seen_at=now() - timedelta(minutes=1))
    text = "No worker is alive; start one with: manage.py ayework_worker"
    assert why(WorkFactory(), "no_worker") == text


def test_no_live_worker_serves_its_queue():
    WorkerProcessFactory(queues="mail,slow")
    work = WorkFactory(queue="images")
    text = "No live worker serves its queue 'images': 1 worker serves 'mail', 'slow'."
    assert why(work, "queue_not_served") == text
    WorkerProcessFactory(queues="reports")
    assert "2 workers serve 'mail', 'reports', 'slow'." in why(work, "queue_not_served")
    expected = {"queue": "images", "served": ["mail", "reports", "slow"], "workers": 2}
    assert facts(work, "queue_not_served") == expected
    WorkerProcessFactory(queues="a,b,c,d")
    assert why(work, "queue_not_served").endswith("3 workers serve 'a', 'b', 'c', 'd', 'mail', ….")


def test_all_slots_are_busy():
    WorkerProcessFactory(concurrency=4, running=4)
    work = WorkFactory()
    text = "All slots of the worker that serves its queue 'default' were busy at the last heartbeat (4/4)."
    assert why(work, "workers_busy") == text
    WorkerProcessFactory(concurrency=8, running=9, queues="mail,default")
    WorkerProcessFactory(concurrency=8, running=0, queues="mail")
    assert "the 2 workers that serve its queue 'default' were busy" in why(work, "workers_busy")
    expected = {"queue": "default", "running": 13, "concurrency": 12, "workers": 2}
    assert facts(work, "workers_busy") == expected
    WorkerProcessFactory(concurrency=4, running=3)
    assert why(work, "next") == "It is next: a worker will take it at its next poll, within 1 s."


def test_a_work_that_no_worker_takes_although_slots_are_free_says_what_to_check():
    work = WorkFactory(run_at=now())
    time_travel(61)
    WorkerProcessFactory(concurrency=4, running=3)
    text = why(work, "next")
    assert text.startswith("It is next, and no worker has taken it for 1 min")
    assert text.endswith("the types that their code defines, and the hook BACKPRESSURE.")


def test_works_of_higher_priority_or_due_for_longer_go_first():
    WorkerProcessFactory()
    early, work = WorkFactory(run_at=now() - timedelta(seconds=10)), WorkFactory()
    text = "1 work is ahead of it in its queue 'default': of higher priority, or due for longer."
    assert why(work, "behind_others") == text
    urgent = WorkFactory(priority=5)
    WorkFactory(priority=-1)
    WorkFactory(queue="mail", priority=9)
    WorkFactory(status="running", priority=9)
    WorkFactory(run_at=now() + timedelta(seconds=10))
    assert why(work, "behind_others").startswith("2 works are ahead")
    assert facts(work, "behind_others") == {"queue": "default", "ahead": 2, "more": False}
    why(urgent, "next")
    assert facts(early, "behind_others")["ahead"] == 1


def test_many_works_ahead_are_counted_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(explain, "MOST_AHEAD", 5)
    WorkerProcessFactory(running=8)
    WorkFactory.create_batch(5, priority=1)
    work = WorkFactory()
    assert "5 works are ahead" in why(work, "workers_busy", "behind_others")
    WorkFactory.create_batch(2, priority=1)
    assert "More than 5 works are ahead" in why(work, "workers_busy", "behind_others")
    assert facts(work, "behind_others") == {"queue": "default", "ahead": 5, "more": True}


@describe(name="explain.by_unit", order="unit")
def by_unit() -> None:
    """Is claimed apart from other types."""


def test_works_with_a_label_wait_for_those_before_their_turn_and_hold_up_later_ones_of_other_types():
    WorkerProcessFactory()
    alone = enqueue(by_unit())
    handles = [enqueue(add(a=1, b=2), **label) for label in ({}, {}, {"fairness": "ann"})] + [enqueue(fail())]
    assert [facts(handle, "behind_others")["ahead"] for handle in handles[1:]] == [1, 2, 3]
    for handle in (alone, handles[0]):
        why(handle, "next")


def test_a_work_taken_meanwhile_has_none_ahead():
    taken = find_row(WorkFactory().id)
    Work.objects.update(status="running")
    WorkFactory()
    assert taken is not None
    assert works_ahead(taken, [taken.type], 10) == 0


def test_a_retry_without_a_pause_names_the_failure_or_the_loss():
    WorkerProcessFactory()
    handle = enqueue(fail(), retry=Retry(base=0))
    drain(limit=1, raises=False)
    text = "It is tried again, because attempt 1 of 3 failed: RuntimeError: no luck."
    assert why(handle, "next", "retrying").endswith(text)
    Work.objects.all().delete()
    lapsed = {"worker": "w", "leased_until": now() - timedelta(seconds=1)}
    lost = WorkFactory(status="running", attempt=1, delivery=1, **lapsed)
    assert len(reclaim()) == 1
    text = "because the worker that made attempt 1 of 3 was lost."
    assert why(lost, "next", "retrying").endswith(text)
    assert facts(lost, "retrying")["lost"] is True


def test_a_work_retried_by_hand_names_its_last_error_if_there_is_one_and_a_deferred_one_its_deferral():
    failed = enqueue(fail(), retry=Retry(attempts=1))
    drain(raises=False)
    handle, deferred = enqueue(one()), enqueue(defer(seconds=60))
    cancel(handle.id)
    for each in (failed, handle):
        retry(each.id)
    text = "It was retried by hand. Its last error before that: RuntimeError: no luck."
    assert why(failed, "no_worker", "retried_by_hand").endswith(text)
    why(handle, "no_worker")
    drain(raises=False)
    time_travel(61)
    Work.objects.filter(id=deferred.id).update(status="pending")
    why(deferred, "no_worker", "deferred")


def test_a_deadline_to_come_and_one_that_has_passed():
    handle = enqueue(one(), expires=60)
    assert "It expires unless it starts by " in why(handle, "no_worker", "deadline")
    time_travel(61)
    text = "the next worker that polls ends it as expired"
    assert text in why(handle, "no_worker", "past_deadline")


# --- controls -------------------------------------------------------------------------------------------


@pytest.fixture
def controlled():
    """A worker is alive, and types are declared whose controls are looked at."""
    from tests.controls import works  # noqa: F401

    WorkerProcessFactory()


@pytest.mark.usefixtures("controlled")
def test_its_type_or_its_queue_is_paused():
    pause(queue="mail")
    text = why(WorkFactory(type=TYPE, queue="mail"), "queue_paused")
    assert text.startswith("Its queue 'mail' is paused; manage.py ayework_resume --queue mail or")
    why(WorkFactory(type=TYPE), "next")
    Work.objects.all().delete()
    pause(type=TYPE)
    later = now() + timedelta(hours=1)
    why(WorkFactory(type=TYPE, status="scheduled", run_at=later), "not_due", "type_paused")
    command = f"manage.py ayework_resume --type {TYPE}"
    text = f"Its type {TYPE!r} is paused; {command} or the admin's controls let it go on."
    assert why(WorkFactory(type=TYPE), "type_paused") == text


@pytest.mark.usefixtures("controlled")
def test_its_type_is_at_its_limit():
    limit(TYPE, max_running=2)
    work = WorkFactory(type=TYPE)
    WorkFactory(type=TYPE, status="running")
    why(work, "next")
    WorkFactory(type=TYPE, status="running")
    WorkFactory(type="controls.other", status="running")
    text = f"Its type {TYPE!r} is at its limit: 2 works of the type run, and at most 2 may run."
    assert why(work, "at_limit").startswith(text)
    assert facts(work, "at_limit") == {"running": 2, "max_running": 2}


@pytest.mark.usefixtures("controlled")
def test_types_of_higher_priority_go_first():
    limit("controls.other", priority=1)
    work = WorkFactory(type=TYPE)
    why(work, "next")
    other = WorkFactory(type="controls.other")
    text = "Types of higher priority go first in its queue 'default': 'controls.other'."
    assert why(work, "outranked").startswith(text)
    why(other, "next")
    why(WorkFactory(type="controls.other"), "behind_others")
