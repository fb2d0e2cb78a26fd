"""A gate that has not opened."""

from __future__ import annotations

from django_ayework import Count, dependency, enqueue, explain
from django_ayework.models import Waiter
from django_ayework.testing import drain, now, time_travel
from django_ayework.testing.factories import WorkerProcessFactory, WorkFactory
from django_ayework.testing.running import run_commit_callbacks
from tests.app.works import add
from tests.chains.test_chains import count
from tests.explain.kit import facts, why
from tests.explain.works import give_up, one


def gate(on, condition="all-success", **options):
    """A gate that was looked at."""
    handle = enqueue(dependency(on, [one(number=0)], condition, **options))
    run_commit_callbacks()
    return handle


def test_what_it_waits_for():
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


def test_of_many_works_the_first_are_named():
    text = why(gate(list("abcdefgh")).id, "waits_for_works")
    assert text.endswith("d (does not exist (yet)), e (does not exist (yet)) and 3 more.")


def test_conditions_in_words():
    assert "until its one work has succeeded:" in why(gate(["a"]).id, "waits_for_works")
    assert "until all of its 2 works have ended:" in why(gate(["a", "b"], "all-done").id, "waits_for_works")
    assert "until 1 of 2 works have ended:" in why(gate(["a", "b"], Count(1)).id, "waits_for_works")
    some = gate(["a", "b"], Count(2, of="success"))
    assert "until 2 of 2 works have succeeded:" in why(some.id, "waits_for_works")


def test_a_condition_that_cannot_be_read():
    waiting = gate(["a"])
    Waiter.objects.update(condition='"all-broken"')
    text = why(waiting.id, "waits_for_works")
    assert 'for 1 work on a condition that cannot be read, "all-broken":' in text


def test_it_can_open_only_if_works_are_retried():
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
    assert "a worker rechecks it at its next poll" in why(waiting.id, "waits_for_works", "recheck")


def test_its_timeout():
    waiting = gate(["a"], timeout=60)
    assert "It expires unless it opens by " in why(waiting.id, "waits_for_works", "deadline")
    time_travel(61)
    why(waiting.id, "waits_for_works", "past_deadline", "no_worker")
    WorkerProcessFactory(seen_at=now())
    why(waiting.id, "waits_for_works", "past_deadline")


def test_what_it_waits_for_is_lost():
    assert "can never open: cancel it" in why(WorkFactory(status="blocked").id, "no_waiter")


def test_a_work_with_blockers_names_the_chains_and_how_their_last_works_stand():
    chain = enqueue(count(n=0, until=2))
    handle = enqueue(add(a=1, b=1), blockers=[chain])
    drain(limit=1)
    assert f"{chain.id} (pending)" in str(explain(handle.id))
