"""A work that has ended, or that a worker has; and the call itself."""

import dataclasses
import re
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from django_ayework import (
    Explanation,
    Retry,
    Status,
    WorkNotFound,
    aexplain,
    cancel,
    complete,
    dependency,
    doers,
    enqueue,
    explain,
    work,
)  # fmt: skip
from django_ayework.models import Work
from django_ayework.testing import drain, now
from django_ayework.testing.factories import DeadLetterFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add, fail
from tests.explain.kit import DISTANT, MOMENT, facts, give_up, one, why
from tests.fixtures import undeclared  # noqa: F401

# --- the call -------------------------------------------------------------------------------------------


def test_a_work_that_is_not_there():
    with pytest.raises(WorkNotFound, match=r"no work has the id 'nowhere'.*not committed") as caught:
        explain("nowhere")
    assert caught.value.id == "nowhere"


def test_it_is_data_and_a_sentence():
    explanation = explain(enqueue(one()).id)
    assert isinstance(explanation, Explanation)
    assert explanation.status is Status.PENDING
    assert str(explanation) == " ".join(reason.text for reason in explanation.reasons)
    with pytest.raises(dataclasses.FrozenInstanceError):
        explanation.id = "other"  # type: ignore[misc]
    assert hash(explanation) == hash(explain(explanation.id))
    assert async_to_sync(aexplain)(explanation.id) == explanation


def test_moments_are_shown_in_the_current_time_zone():
    work = WorkFactory(status="scheduled", run_at=now() + timedelta(hours=1))
    with timezone.override("Asia/Tokyo"):
        assert " JST (in " in why(work, "not_due")


# --- running --------------------------------------------------------------------------------------------


def held(by, lease=30, attempt=1, **fields):
    """A work held since ten seconds ago."""
    moments = {"started_at": now() - timedelta(seconds=10), "leased_until": now() + timedelta(seconds=lease)}
    return WorkFactory(status="running", worker=by, attempt=attempt, **moments, **fields)


def test_by_a_worker_that_lives():
    worker = WorkerProcessFactory(host="web1", pid=77)
    work = held(worker.id)
    assert re.fullmatch(
        rf"Worker web1:77 has held it since {MOMENT} \(1\d s ago\), for attempt 1 of 3, "
        rf"leased until {MOMENT} \(in (29|30) s\)\.",
        why(work, "running"),
    )
    expected = {"worker": worker.id, "host": "web1", "pid": 77, "attempt": 1, "attempts": 3}
    expected |= {"started_at": work.started_at, "leased_until": work.leased_until}
    assert facts(work, "running") == expected
    named = WorkerProcessFactory(name="mailer", host="web1", pid=77)
    assert why(held(named.id), "running").startswith("Worker mailer (web1:77) has held it since")


def test_by_a_worker_that_is_gone():
    silent = WorkerProcessFactory(seen_at=now() - timedelta(minutes=2))
    text = why(held(silent.id), "running", "worker_silent")
    assert re.search(rf"That worker was last seen at {MOMENT} \(2 min( \d s)? ago\)\.", text)
    stopped = WorkerProcessFactory(stopped_at=now() - timedelta(seconds=5))
    text = why(held(stopped.id), "running", "worker_stopped")
    assert re.search(rf"That worker stopped at {MOMENT} \(\d s ago\)\.", text)
    text = why(held("w-1"), "running", "worker_unknown")
    assert text.startswith("Worker w-1 has held it")
    assert "no trace of that worker" in text


@pytest.mark.parametrize("owner", ["type", "settings"])
def test_its_type_has_a_doer(owner, settings):
    doer = doers.rate_limited(1, 3600)
    work(name="explain.slow", doer=doer if owner == "type" else None)(lambda: None)
    settings.AYEWORK = {} if owner == "type" else {"DOER": doer}
    running = held(WorkerProcessFactory().id, type="explain.slow")
    text = "Its type has a doer: workers take its works only as the limits of the doer allow."
    assert text in why(WorkFactory(type="explain.slow"), "doer_limits")
    assert "where it may wait for its turn" in why(running, "running", "in_doer")


def test_its_lease_has_lapsed():
    work = held(WorkerProcessFactory(seen_at=now() - timedelta(minutes=2)).id, lease=-5, queue="mail")
    lapsed = "running", "worker_silent", "lease_lapsed"
    why(work, *lapsed, "no_worker")
    WorkerProcessFactory(queues="default,images")
    text = why(work, *lapsed, "queue_not_served")
    assert text.endswith("No live worker serves its queue 'mail': 1 worker serves 'default', 'images'.")
    mailer = WorkerProcessFactory(queues="mail")
    assert why(work, *lapsed).endswith(
        "Its lease has lapsed: the next worker that serves its queue and type takes it back to try it again."
    )
    text = why(held(mailer.id, lease=-5, attempt=3, queue="mail"), "running", "lease_lapsed")
    assert text.endswith("ends it as dead, for this was its last attempt.")


# --- ended ----------------------------------------------------------------------------------------------


def test_success_by_a_worker():
    handle = enqueue(one())
    drain()
    assert re.fullmatch(rf"It succeeded at {DISTANT}, run by worker drain\.", why(handle, "succeeded"))
    worker = WorkerProcessFactory(host="web1", pid=77)
    Work.objects.update(completed_by=worker.id)
    assert why(handle, "succeeded").endswith("run by worker web1:77.")
    assert facts(handle, "succeeded") == {"ended_at": handle.state().ended_at, "by": "web1:77"}


def completed():
    handle = enqueue(one())
    complete(handle.id, 5)
    return handle


def misfit():
    handle = enqueue(add(a=1, b=2))
    Work.objects.update(input='{"aa":1,"b":2}')
    return handle


@pytest.mark.parametrize(
    ("build", "code", "text"),
    [
        (completed, "succeeded", rf"It was completed by hand at {DISTANT}\."),
        (lambda: enqueue(dependency([], [one()])), "succeeded",
         rf"It opened at {DISTANT}, and queued the works it held\."),
        (lambda: cancel(enqueue(one()).id), "cancelled",
         rf"It was cancelled by hand at {DISTANT}; retry it to run it after all\."),
        (lambda: enqueue(fail(message="no luck"), retry=Retry(attempts=2, base=0)), "exhausted",
         rf"It died at {DISTANT} after 2 attempts\. The last one failed: "
         r"RuntimeError: no luck\. Mend the cause, then retry it\."),
        (lambda: enqueue(give_up()), "aborted", r".*gave up: no card\. Mend the cause.*"),
        (lambda: enqueue(one(), deadline=now() - timedelta(seconds=1)), "expired",
         r".*past its deadline: deadline exceeded\. Retry it if it is still wanted.*"),
        (lambda: enqueue(dependency(["never"], [one()]), deadline=now() - timedelta(seconds=1)), "expired",
         r".*A retry starts its timeout or expires anew; an explicit deadline stays\."),
        (misfit, "bad_input", r".*cannot be read, or does not fit its handler:.*"
         r"Mend the handler, or retry it with an input that fits\."),
    ],
    ids=["completed", "opened", "cancelled", "exhausted", "aborted", "expired", "expired gate", "bad input"],
)  # fmt: skip
def test_the_end_of_a_work(build, code, text):
    handle = build()
    drain(raises=False)
    assert re.fullmatch(text, why(handle, code))
    if code == "exhausted":
        assert facts(handle, code)["error"] == "RuntimeError: no luck"


def test_the_effects_of_a_last_attempt_that_was_lost_are_to_be_checked():
    dead = DeadLetterFactory(reason="exhausted", error="worker lost", attempt=1)
    text = why(dead, "exhausted")
    assert text.endswith("was lost, so its effects may have happened. Check them before you retry it.")


def test_a_gate_whose_works_cannot_be_read():
    gate = enqueue(dependency([enqueue(one())], [one()]))
    Work.objects.filter(id=gate.id).update(input="broken")
    drain()
    text = why(gate, "bad_input")
    assert "the works it holds cannot be queued: NotDecodable:" in text
    assert text.endswith("Mend the cause, then retry it; or queue those works by hand.")


def test_unsatisfiable_names_the_members_to_retry():
    held = one()
    gate, behind = enqueue(dependency(["a", "b"], [held])), enqueue(dependency([held], [one()]))
    enqueue(one(), id="b")
    enqueue(give_up(), id="a")
    drain()
    text = why(gate, "unsatisfiable")
    assert text.endswith("can no longer be met, as a is dead. Retry a, and it waits again.")
    members = [{"id": "a", "outcome": "dead", "status": "dead"}]
    assert facts(gate, "unsatisfiable")["members"] == members
    text = why(behind, "unsatisfiable")
    assert f"as {held.id} is cancelled." in text
    assert "does not exist (yet): retry the works that keep its gate from opening." in text
    assert text.endswith("If it was deleted, queue this work again.")


@pytest.mark.parametrize(
    ("row", "code", "text"),
    [
        ({"type": "gone.work", "reason": "unknown_type"}, "unknown_type",
         "no worker knew its type 'gone.work' for long enough. Install the app"),
        ({"reason": "", "error": ""}, "died", ": no error was kept."),
        ({"reason": "a-new-one", "error": ""}, "died", ": no error was kept."),
        ({"reason": "unsatisfiable"}, "unsatisfiable", "Retry it once its watched works may succeed."),
    ],
    ids=["unknown type", "no reason", "reason of another version", "no waiter"],
)  # fmt: skip
def test_a_dead_work_of_which_little_is_known(row, code, text):
    assert text in why(DeadLetterFactory(**row), code)


@pytest.mark.parametrize("status", ["success", "dead", "cancelled"])
def test_a_row_that_was_changed_by_hand_and_has_no_end_is_explained(status):
    work = WorkFactory(status=status, reason="exhausted" if status == "dead" else "", ended_at=None)
    assert "–" in str(explain(work.id))
