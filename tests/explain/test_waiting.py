"""A work that cannot run yet: a gate or its blockers hold it, or its moment has not come."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from django_ayework import Count, Retry, dependency, enqueue, explain
from django_ayework.models import Waiter, Work
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from django_ayework.testing.running import run_commit_callbacks
from tests.app.works import add, fail
from tests.chains.kit import count
from tests.explain.kit import DISTANT, MOMENT, defer, facts, give_up, one, why

# --- a gate that has not opened -------------------------------------------------------------------------


def gate(on, condition="all-success", **options):
    """A gate that was rechecked."""
    handle = enqueue(dependency(on, [one(number=0)], condition, **options))
    run_commit_callbacks()
    return handle


def test_what_a_gate_waits_for():
    enqueue(one(number=1), id="a")
    enqueue(one(number=2), id="b")
    waiting = gate(["a", "b", "c"])
    drain(limit=1)
    assert why(waiting.id, "waits_for_works") == (
        "It waits until all of its 3 works have succeeded: 1 succeeded, 0 ended without success, 2 open "
        "– b (pending), c (does not exist (yet))."
    )
    assert facts(waiting.id, "waits_for_works") == {
        "condition": '"all-success"',
        "total": 3,
        "succeeded": 1,
        "missed": 0,
        "open": [{"id": "b", "status": "pending"}, {"id": "c", "status": None}],
    }


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
    assert text in why(gate([*on], condition).id, "waits_for_works")


def test_a_condition_or_a_waiter_that_cannot_be_read():
    waiting = gate(["a"])
    Waiter.objects.update(condition='"all-broken"')
    text = why(waiting.id, "waits_for_works")
    assert 'for 1 work on a condition that cannot be read, "all-broken":' in text
    assert "can never open: cancel it" in why(WorkFactory(status="blocked").id, "no_waiter")


def test_a_gate_that_can_open_only_if_works_are_retried():
    waiting = gate(["a", "b"], on_unmet="wait")
    enqueue(give_up(), id="a")
    drain()
    text = why(waiting.id, "waits_for_works", "cannot_be_met")
    assert text.endswith(
        'It can open only if works are retried, and waits for that (on_unmet="wait"); retry a (dead).'
    )
    assert facts(waiting.id, "cannot_be_met") == {"members": ["a"]}


def test_a_recheck_is_pending():
    waiting = gate(["a"])
    Waiter.objects.update(recheck=True)
    why(waiting.id, "waits_for_works", "recheck", "no_worker")
    WorkerProcessFactory()
    assert "A worker rechecks it at its next poll" in why(waiting.id, "waits_for_works", "recheck")


def test_the_timeout_of_a_gate():
    waiting = gate(["a"], timeout=60)
    assert "It expires unless it opens by " in why(waiting.id, "waits_for_works", "deadline")
    time_travel(61)
    why(waiting.id, "waits_for_works", "past_deadline", "no_worker")
    WorkerProcessFactory(seen_at=now())
    why(waiting.id, "waits_for_works", "past_deadline")


def test_a_work_with_blockers_names_the_chains_and_how_their_last_works_stand():
    chain = enqueue(count(n=0, until=2))
    handle = enqueue(add(a=1, b=1), blockers=[chain])
    drain(limit=1)
    assert f"{chain.id} (pending)" in str(explain(handle.id))


# --- a work whose moment has not come, or has just come -------------------------------------------------


def test_it_is_due_later_and_has_a_deadline():
    handle = enqueue(one(number=1), delay=300, expires=3600)
    found = re.match(
        rf"It is due at {MOMENT} \(in (5 min|4 min 59 s)\)\. It expires unless it starts by ",
        why(handle.id, "not_due", "deadline"),
    )
    assert found
    assert 290 < facts(handle.id, "not_due")["seconds"] <= 300
    assert facts(handle.id, "deadline") == {"deadline": handle.state().deadline}


def test_its_moment_has_come():
    handle = enqueue(one(number=1), delay=60)
    time_travel(90)
    why(handle.id, "due", "no_worker")
    WorkerProcessFactory(queues="mail", seen_at=now())
    why(handle.id, "due", "queue_not_served")
    WorkerProcessFactory(seen_at=now())
    text = rf"It was due at {MOMENT} \(3\d s ago\); a worker makes it pending at its next poll\."
    assert re.fullmatch(text, why(handle.id, "due"))


def test_a_retry_after_a_failure():
    handle = enqueue(fail(message="no\nluck"), retry=Retry(attempts=5, base=600, max=600, jitter=0))
    drain(raises=False)
    text = why(handle.id, "not_due", "retrying")
    assert ". It is tried again, because attempt 1 of 5 failed: RuntimeError: no." in text
    expected = {"attempt": 1, "attempts": 5, "error": "RuntimeError: no\nluck", "lost": False}
    assert facts(handle.id, "retrying") == expected
    time_travel(601)
    drain(raises=False)
    assert "attempt 2 of 5 failed" in why(handle.id, "not_due", "retrying")


def test_a_deferral():
    handle = enqueue(defer(seconds=600))
    drain()
    text = why(handle.id, "not_due", "deferred")
    assert re.search(rf"\. Its handler deferred it to {DISTANT}", text)
    assert text.endswith("that used no attempt.")


def test_a_work_parked_because_its_type_is_unknown(settings):
    settings.AYEWORK = {"UNKNOWN_TYPE_GRACE": 600}
    work = WorkFactory(type="gone.work")
    drain()
    text = why(work.id, "not_due", "parked")
    assert "none knew its type 'gone.work'." in text
    assert re.search(rf"Without one, it dies at {MOMENT} \((in 10 min|in 9 min 5\d s)\)\.", text)
    found = facts(work.id, "parked")
    assert found["until"] - found["since"] == timedelta(minutes=10)
    assert found["type"] == "gone.work"


def test_a_parked_work_of_a_type_that_is_known_here_is_not_taken_for_one_of_another_name():
    work = WorkFactory(type="gone.work")
    drain()
    Work.objects.filter(id=work.id).update(type=add.name)
    text = why(work.id, "not_due", "parked")
    assert "This process knows the type: restart the workers, so that they load the same code." in text
    assert "Did you mean" not in text
