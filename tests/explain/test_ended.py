"""A work that has ended."""

from __future__ import annotations

import re
from typing import Any

import pytest

from django_ayework import Retry, cancel, complete, dependency, enqueue
from django_ayework.models import Work
from django_ayework.testing import drain, time_travel
from django_ayework.testing.factories import DeadLetterFactory, WorkerProcessFactory
from tests.app.works import fail
from tests.explain.kit import facts, why
from tests.explain.works import give_up, one

MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ \([^)]+\)"


def test_success_by_a_worker():
    handle = enqueue(one(number=1))
    drain()
    text = why(handle.id, "succeeded")
    assert re.fullmatch(rf"It succeeded at {MOMENT}, run by worker drain\.", text)
    worker = WorkerProcessFactory(host="web1", pid=77)
    Work.objects.update(completed_by=worker.id)
    assert why(handle.id, "succeeded").endswith("run by worker web1:77.")
    assert facts(handle.id, "succeeded") == {"ended_at": handle.state().ended_at, "by": "web1:77"}


def test_success_by_hand():
    handle = enqueue(one(number=1))
    complete(handle.id, 5)
    assert re.fullmatch(rf"It was completed by hand at {MOMENT}\.", why(handle.id, "succeeded"))


def test_a_gate_that_opened():
    gate = enqueue(dependency([enqueue(one(number=1))], [one(number=2)]))
    drain()
    assert re.fullmatch(rf"It opened at {MOMENT}, and queued the works it held\.", why(gate.id, "succeeded"))


def test_cancelled():
    handle = enqueue(one(number=1))
    cancel(handle.id)
    text = why(handle.id, "cancelled")
    assert re.fullmatch(rf"It was cancelled by hand at {MOMENT}; retry it to run it after all\.", text)


def test_exhausted():
    handle = enqueue(fail(message="no luck"), retry=Retry(attempts=2, base=0))
    drain(raises=False)
    assert re.fullmatch(
        rf"It died at {MOMENT}: its budget ended with 2 attempts, the last one failed: "
        r"RuntimeError: no luck\. Mend the cause, then retry it\.",
        why(handle.id, "exhausted"),
    )
    assert facts(handle.id, "exhausted")["error"] == "RuntimeError: no luck"


def test_aborted():
    handle = enqueue(give_up())
    drain()
    assert "gave up: no card. Mend the cause" in why(handle.id, "aborted")


def test_expired():
    handle = enqueue(one(number=1), expires=60)
    time_travel(61)
    drain()
    assert "past its deadline: deadline exceeded. Retry it if it is still wanted" in why(handle.id, "expired")


def test_unknown_type():
    work = DeadLetterFactory(type="gone.work", reason="unknown_type")
    text = why(work.id, "unknown_type")
    assert "no worker knew its type 'gone.work' for long enough. Install the app" in text


def test_bad_input():
    handle = enqueue(one(number=1))
    Work.objects.update(input='{"numbr":1}')
    drain(raises=False)
    text = why(handle.id, "bad_input")
    assert "cannot be read, or does not fit its handler:" in text
    assert text.endswith("Mend the handler, or retry it with an input that fits.")


def test_a_gate_whose_works_cannot_be_read():
    gate = enqueue(dependency([enqueue(one(number=1))], [one(number=2)]))
    Work.objects.filter(id=gate.id).update(input="broken")
    drain()
    text = why(gate.id, "bad_input")
    assert "the works it holds cannot be queued: NotDecodable:" in text
    assert text.endswith("Mend the cause, then retry it; or queue those works by hand.")


def test_unsatisfiable_names_the_members_to_retry():
    gate = enqueue(dependency(["a", "b"], [one(number=1)]))
    enqueue(one(number=1), id="b")
    enqueue(give_up(), id="a")
    drain()
    text = why(gate.id, "unsatisfiable")
    assert text.endswith("can no longer happen, as a is dead. Retry a, and it waits again.")
    members = facts(gate.id, "unsatisfiable")["members"]
    assert members == [{"id": "a", "outcome": "dead", "status": "dead"}]


def test_unsatisfiable_for_a_work_that_was_never_queued():
    held = one(number=1)
    enqueue(dependency(["a"], [held]))
    second = enqueue(dependency([held], [one(number=2)]))
    enqueue(give_up(), id="a")
    drain()
    text = why(second.id, "unsatisfiable")
    assert f"as {held.id} is cancelled." in text
    assert "does not exist (yet): retry what kept the gate that holds it from opening;" in text
    assert text.endswith("if it was deleted, queue this one anew.")


@pytest.mark.parametrize("reason", ["", "a-new-one"])
def test_a_reason_of_another_version(reason: Any):
    work = DeadLetterFactory(reason=reason, error="")
    assert why(work.id, "died").endswith(": no error was kept.")


def test_unsatisfiable_without_a_trace_of_what_it_watched():
    work = DeadLetterFactory(reason="unsatisfiable")
    assert why(work.id, "unsatisfiable").endswith("Retry it once what it watches may succeed.")
