"""What cannot skip the queue says so when it is described or enqueued."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from django_ayework import Context, dependency, doers, enqueue, enqueue_many, work
from django_ayework.errors import ImproperWork, InvalidOption
from django_ayework.models import Work
from django_ayework.testing import now, perform
from tests.batches.works import three
from tests.direct.works import quick
from tests.worker import works


@pytest.mark.parametrize("name", ["delay", "run_at", "blockers"])
def test_it_starts_at_once_or_not_at_all(name):
    value = {"delay": 5, "run_at": now() + timedelta(hours=1), "blockers": ["some-chain"]}[name]
    message = f"expected no {name}= for a work that skips the queue, as that starts at once, got: {name}="
    for act in (
        lambda: enqueue(quick(), **{name: value}),
        lambda: enqueue(works.quick(), skip_queue=True, **{name: value}),
        lambda: enqueue_many([quick()], **{name: value}),
    ):
        with pytest.raises(InvalidOption, match=re.escape(message)) as refusal:
            act()
        assert "enqueue the work with skip_queue=False" in str(refusal.value)
    assert not Work.objects.exists()


def test_what_starts_later_goes_through_the_queue_when_told_so():
    assert enqueue(quick(), delay=5, skip_queue=False).state().status == "scheduled"
    assert enqueue(quick(), delay=0).result(20), "a delay of nothing is none"


def limited():
    return work(name="direct.limited", doer=doers.balanced(1))(lambda: None)()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (lambda: three(1), "expected skip_queue=True for works that are run one by one"),
        (lambda: dependency(["a"], [quick()]), "expected skip_queue=True for works that are run one by one"),
        (limited, "expected skip_queue=True for works without a doer= of their own"),
    ],
    ids=["batch", "gate", "doer"],
)
def test_what_waits_for_others_cannot_skip_the_queue(request_, message):
    with pytest.raises(InvalidOption, match=message):
        enqueue(request_(), skip_queue=True)
    assert not Work.objects.exists()


def test_a_flag_is_true_or_false():
    with pytest.raises(InvalidOption, match="expected skip_queue to be True or False, got: 1"):
        enqueue(quick(), skip_queue=1)
    with pytest.raises(InvalidOption, match="expected skip_queue to be True or False, got: 'yes'"):
        work(name="direct.case", skip_queue="yes")(lambda: None)
    with pytest.raises(ImproperWork, match=r"interval= or skip_queue=True, got both for 'direct.case'"):
        work(name="direct.case", interval=5, skip_queue=True)(lambda: None)


def test_a_handlers_instructions_take_no_such_option():
    def in_queue(ctx: Context):
        return ctx.queue([quick()], skip_queue=True)

    def in_next(ctx: Context):
        return ctx.queue([quick()]).next(quick(), skip_queue=True)

    def in_chain(ctx: Context):
        return ctx.continue_with(quick(), skip_queue=True)

    for handler in (in_queue, in_next, in_chain):
        declared = work(name="direct.case")(handler)
        error = perform(declared()).error
        assert isinstance(error, TypeError)
        assert "takes no skip_queue=: the worker commits the works that a handler queues" in str(error)
