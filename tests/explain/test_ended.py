"""A work that has ended."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from django_ayework import Retry, cancel, complete, dependency, enqueue
from django_ayework.models import Work
from django_ayework.testing import drain, now
from django_ayework.testing.factories import DeadLetterFactory, WorkerProcessFactory
from tests.app.works import fail
from tests.explain.kit import DISTANT, facts, give_up, one, why


def test_success_by_a_worker():
    handle = enqueue(one(number=1))
    drain()
    text = why(handle.id, "succeeded")
    assert re.fullmatch(rf"It succeeded at {DISTANT}, run by worker drain\.", text)
    worker = WorkerProcessFactory(host="web1", pid=77)
    Work.objects.update(completed_by=worker.id)
    assert why(handle.id, "succeeded").endswith("run by worker web1:77.")
    assert facts(handle.id, "succeeded") == {"ended_at": handle.state().ended_at, "by": "web1:77"}


def completed():
    handle = enqueue(one(number=1))
    complete(handle.id, 5)
    return handle


def misfit():
    handle = enqueue(one(number=1))
    Work.objects.update(input='{"numbr":1}')
    return handle


@pytest.mark.parametrize(
    ("build", "code", "text"),
    [
        (completed, "succeeded", rf"It was completed by hand at {DISTANT}\."),
        (
            lambda: enqueue(dependency([], [one(number=2)])),
            "succeeded",
            rf"It opened at {DISTANT}, and queued the works it held\.",
        ),
        (
            lambda: cancel(enqueue(one(number=1)).id),
            "cancelled",
            rf"It was cancelled by hand at {DISTANT}; retry it to run it after all\.",
        ),
        (
            lambda: enqueue(fail(message="no luck"), retry=Retry(attempts=2, base=0)),
            "exhausted",
            rf"It died at {DISTANT} after 2 attempts\. The last one failed: "
            r"RuntimeError: no luck\. Mend the cause, then retry it\.",
        ),
        (lambda: enqueue(give_up()), "aborted", r".*gave up: no card\. Mend the cause.*"),
        (
            lambda: enqueue(one(number=1), deadline=now() - timedelta(seconds=1)),
            "expired",
            r".*past its deadline: deadline exceeded\. Retry it if it is still wanted.*",
        ),
        (
            misfit,
            "bad_input",
            r".*cannot be read, or does not fit its handler:.*"
            r"Mend the handler, or retry it with an input that fits\.",
        ),
    ],
    ids=["completed", "opened", "cancelled", "exhausted", "aborted", "expired", "bad input"],
)
def test_the_end_of_a_work(build, code, text):
    handle = build()
    drain(raises=False)
    assert re.fullmatch(text, why(handle.id, code))
    if code == "exhausted":
        assert facts(handle.id, code)["error"] == "RuntimeError: no luck"


def test_a_gate_whose_works_cannot_be_read():
    gate = enqueue(dependency([enqueue(one(number=1))], [one(number=2)]))
    Work.objects.filter(id=gate.id).update(input="broken")
    drain()
    text = why(gate.id, "bad_input")
    assert "the works it holds cannot be queued: NotDecodable:" in text
    assert text.endswith("Mend the cause, then retry it; or queue those works by hand.")


def test_unsatisfiable_names_the_members_to_retry():
    held = one(number=1)
    gate = enqueue(dependency(["a", "b"], [held]))
    behind = enqueue(dependency([held], [one(number=2)]))
    enqueue(one(number=1), id="b")
    enqueue(give_up(), id="a")
    drain()
    text = why(gate.id, "unsatisfiable")
    assert text.endswith("can no longer be met, as a is dead. Retry a, and it waits again.")
    members = facts(gate.id, "unsatisfiable")["members"]
    assert members == [{"id": "a", "outcome": "dead", "status": "dead"}]
    text = why(behind.id, "unsatisfiable")
    assert f"as {held.id} is cancelled." in text
    assert "does not exist (yet): retry the works that keep its gate from opening." in text
    assert text.endswith("If it was deleted, queue this work again.")


@pytest.mark.parametrize(
    ("row", "code", "text"),
    [
        (
            {"type": "gone.work", "reason": "unknown_type"},
            "unknown_type",
            "no worker knew its type 'gone.work' for long enough. Install the app",
        ),
        ({"reason": "", "error": ""}, "died", ": no error was kept."),
        ({"reason": "a-new-one", "error": ""}, "died", ": no error was kept."),
        ({"reason": "unsatisfiable"}, "unsatisfiable", "Retry it once its watched works may succeed."),
    ],
    ids=["unknown type", "no reason", "reason of another version", "no waiter"],
)
def test_a_dead_work_of_which_little_is_known(row, code, text):
    assert text in why(DeadLetterFactory(**row).id, code)
