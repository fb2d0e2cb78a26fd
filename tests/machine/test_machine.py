"""Random workflows: after each act, every invariant, and the events of the engine.

The same few in every run, or as many new ones as AYEWORK_MACHINE_EXAMPLES says. A failure names the steps
that led to it. New ones are made as short as possible, which takes long.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from django_ayework import NotRetryable, cancel, completing, enqueue, enqueue_many, retry, trigger
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import ChainNotFound, InvalidInstruction
from django_ayework.flow.gates import recheck_leftovers
from django_ayework.flow.maintenance import prune, prune_others, reclaim
from django_ayework.models import Work
from django_ayework.rules.states import LIVE, RETRYABLE, Status
from django_ayework.store.database import clock
from django_ayework.testing import drain, time_travel
from tests.invariants import assert_consistent
from tests.machine import works
from tests.machine.history import EVENTS, History
from tests.machine.workers import LEASE, Worker

#: Ids of the user's own, that gates may watch before there is such a work.
OWN_IDS = tuple(f"own-{number}" for number in range(4))
DAY = 86_400
BLOCKED, DUE, SCHEDULED = map(frozenset, ([Status.BLOCKED], [Status.PENDING], [Status.SCHEDULED]))
limits = st.integers(1, 6)
rarely = st.sampled_from([False, False, False, True])
START = datetime(2026, 1, 1, tzinfo=UTC)
#: How many random workflows to try, and of how many steps; without it the same few; on servers fewer.
EXAMPLES = int(os.environ.get("AYEWORK_MACHINE_EXAMPLES", "0"))
STEPS = int(os.environ.get("AYEWORK_MACHINE_STEPS", "20"))


def next_id() -> str:
    """An id in no order: locks are taken in the order of ids. Hypothesis has seeded the numbers."""
    return f"{random.getrandbits(48):012x}"


class Workflow(RuleBasedStateMachine):
    """Everything happens in one transaction, which is rolled back at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.transaction = transaction.atomic()
        self.transaction.__enter__()
        clock.reset()
        works.DEFERRED.clear()
        self.history = History()
        self.worker = Worker()
        self.waited_at = 0

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.carry_on_to_the_end()
        finally:
            transaction.set_rollback(True)
            self.transaction.__exit__(None, None, None)
            clock.reset()

    @initialize(several=works.some(works.plans(), 2, 4), together=st.booleans())
    def begin(self, several: Any, together: bool) -> None:
        self.queue_many(several, together)

    @rule(plan=works.plans(), priority=st.integers(0, 1), own=st.sampled_from([None, None, None, *OWN_IDS]))
    def queue_one(self, plan: Any, priority: int, own: str | None) -> None:
        if own not in self.history.ever:
            with self.unless_refused():
                request = works.request_of(self.resolved(plan))
                enqueue(request, priority=priority, id=own, expires=300 if priority else None)

    @rule(several=works.some(works.plans(), 1, 4), together=st.booleans())
    def queue_many(self, several: Any, together: bool) -> None:
        with self.unless_refused():
            enqueue_many(works.requests_of(self.resolved(several)), together=together)

    @rule(gate=works.gates(), crash=rarely)
    def queue_gate(self, gate: Any, crash: bool) -> None:
        """Queue a gate; its recheck may be left to another process, as when a process dies."""
        with self.unless_refused():
            enqueue(works.gate_of(self.resolved(gate)))
        if crash:
            self.history.is_heard = False
            connection.run_on_commit.clear()
            recheck_leftovers()

    @precondition(lambda self: self.history.ids(DUE))
    @rule(limit=limits)
    def work(self, limit: int) -> None:
        drain(limit, raises=False)

    @precondition(lambda self: self.history.ids(DUE))
    @rule(limit=limits)
    def work_in_a_batch(self, limit: int) -> None:
        """Run several, and settle them in one transaction."""
        self.worker.run_batch(limit)

    @precondition(lambda self: self.history.ids(DUE))
    @rule(limit=limits)
    def start(self, limit: int) -> None:
        """Run works whose outcomes will be settled later, if at all."""
        self.worker.start(limit)

    @precondition(lambda self: self.worker.held)
    @rule(limit=limits, stops=rarely)
    def settle(self, limit: int, stops: bool) -> None:
        """Settle what was started first, though it may be somebody else's by now; or put everything back."""
        if stops:
            self.worker.release_held()
        else:
            self.worker.settle_held(limit)

    @precondition(lambda self: self.history.ids(DUE))
    @rule(limit=limits, late=limits)
    def fall_silent(self, limit: int, late: int) -> None:
        """Start works and lose them to others, who start them again; then settle some all the same."""
        self.worker.start(limit)
        time_travel(LEASE + 1)
        reclaim()
        self.worker.start(10)
        self.worker.settle_held(late)

    @precondition(lambda self: self.history.steps - self.waited_at > 2)
    @rule(seconds=st.sampled_from([31, 61, 91, LEASE - 10, DAY + 1]))
    def wait(self, seconds: float) -> None:
        """Let time pass; after a day what is old is deleted."""
        self.waited_at = self.history.steps
        time_travel(seconds)
        if seconds > DAY:
            prune()
            prune_others()
            self.history.is_pruned = True

    @precondition(lambda self: self.history.ids(LIVE))
    @rule(number=works.numbers, waiting=st.booleans(), undone=rarely)
    def cancel(self, number: int, waiting: bool, undone: bool) -> None:
        id = self.one(number, BLOCKED if waiting and self.history.ids(BLOCKED) else LIVE)
        self.act(lambda: cancel(id), undone)

    @precondition(lambda self: self.history.ids(RETRYABLE))
    @rule(number=works.numbers, plan=st.none() | works.plans(), undone=rarely)
    def retry(self, number: int, plan: Any, undone: bool) -> None:
        id = self.one(number, RETRYABLE)
        input = {"plan": self.resolved(plan)} if plan is not None and self.has_plan(id) else None
        with suppress(NotRetryable):
            self.act(lambda: retry(id, input), undone)
            assert undone or Work.objects.get(id=id).attempt == 0, "it has its whole budget again"

    @precondition(lambda self: self.history.ids(LIVE))
    @rule(number=works.numbers, plan=works.plans(), undone=rarely)
    def complete(self, number: int, plan: Any, undone: bool) -> None:
        id = self.one(number, LIVE)

        def act() -> None:
            with completing(id) as ctx:
                works.instruction_of(ctx, self.resolved(plan | {"counts": "one"}))

        with self.unless_refused():
            self.act(act, undone)
            if not undone and self.has_plan(id):
                self.history.counted_by_hand.add(id)

    @precondition(lambda self: self.history.ids(SCHEDULED))
    @rule(chosen=works.some(works.numbers, 1, 2))
    def trigger(self, chosen: Sequence[int]) -> None:
        trigger(*[self.one(number, SCHEDULED) for number in chosen])

    def act(self, act: Callable[[], object], undone: bool) -> None:
        """Act, perhaps in a transaction that is rolled back: then nothing has changed."""
        if not undone:
            act()
            return
        with transaction.atomic():
            act()
            transaction.set_rollback(True)
        self.history.is_undone = True

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """A plan may name blockers that there are not, or its own chain: then nothing changes."""
        try:
            with transaction.atomic():
                yield
        except (ChainNotFound, InvalidInstruction):
            self.history.is_undone = True

    def one(self, number: int, statuses: frozenset[Status]) -> str:
        found = self.history.ids(statuses)
        return found[-1 - number % len(found)]

    def resolved(self, plan: Any) -> Any:
        return works.resolved(plan, self.choices)

    @property
    def choices(self) -> Mapping[str, Sequence[str]]:
        """What gates may watch, and what works may be blocked by."""
        tables, ids = self.history.before, self.history.ids()
        chains = [id for id in ids if tables.works[id].chain_index == 0]
        return {"on": [*OWN_IDS, *ids, *sorted(tables.promised)], "after": chains}

    def has_plan(self, id: str) -> bool:
        return self.history.before.works[id].type != GATE_TYPE

    @invariant()
    def all_is_well(self) -> None:
        drain(0)  # what waits for the commit
        self.history.look()
        assert_consistent(self.history.before)

    def carry_on_to_the_end(self) -> None:
        """Mend every plan and retry: whatever has happened, everything can be brought to a good end."""
        self.worker.release_held()
        for _ in range(40):
            drain(raises=False)
            self.all_is_well()
            scheduled = self.history.ids(SCHEDULED)
            trigger(*scheduled)
            mended = [self.mended(id) for id in self.history.ids(RETRYABLE)]
            if not scheduled and not any(mended):
                break
            self.all_is_well()
        self.history.assert_good_end()

    def mended(self, id: str) -> bool:
        """Retry a work that has ended badly, with a plan that goes well; tell whether that was possible."""
        with suppress(NotRetryable):
            retry(id, {"plan": {}} if self.has_plan(id) else None)
            return self.history.before.works[id].reason != "bad_input"
        return False


@pytest.mark.django_db
@pytest.mark.timeout(0 if EXAMPLES else 300)
def test_whatever_happens_the_tables_stay_consistent_and_all_can_be_mended(repeatable: None) -> None:
    run_machine(
        Workflow,
        settings=settings(
            max_examples=EXAMPLES or (5 if connection.vendor == "sqlite" else 4),
            stateful_step_count=STEPS,
            derandomize=not EXAMPLES,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if EXAMPLES else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
def repeatable(settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Ids and moments are the same in every run; travelling in time is as ever."""
    settings.AYEWORK = {"ID": next_id, "ON_EVENT": EVENTS.append}
    caplog.set_level(logging.ERROR, "django_ayework")
    ticks = count()
    monkeypatch.setattr(clock, "now", lambda: START + timedelta(milliseconds=next(ticks)) + clock._shift)
