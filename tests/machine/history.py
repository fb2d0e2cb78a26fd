"""The events of the engine, compared with its tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Any

from django.db.models import Model

from django_ayework.define.handles import Kind, WorkEvent
from django_ayework.models import Work
from django_ayework.rules.states import LIVE, RETRYABLE, Status
from tests.invariants import Tables

#: Every event since the last step.
EVENTS: list[WorkEvent] = []


class History:
    """The tables as they were after the last step, and what may be expected of the next."""

    def __init__(self) -> None:
        EVENTS.clear()
        self.before = Tables()
        self.counted_by_hand: set[str] = set()
        self._counted: Counter[str | None] = Counter()
        self._first_seen: dict[str, int] = {}
        self.steps = 0
        self._expect_as_usual()

    def _expect_as_usual(self) -> None:
        self.is_heard = True  # or the events of this step are lost
        self.is_undone = False  # or this step was rolled back
        self.is_pruned = False  # or this step deletes what has ended

    def ids(self, statuses: Iterable[str] = frozenset(Status)) -> list[str]:
        """The works of these statuses, the oldest first."""
        works = self.before.works
        return [id for id in sorted(works, key=self._place) if works[id].status in statuses]

    def _place(self, id: str) -> tuple[int, str]:
        return self._first_seen[id], id

    @property
    def ever(self) -> Collection[str]:
        """Every id there ever was."""
        return self._first_seen.keys()

    def look(self) -> History:
        """Read the tables, and assert that the events match the changes."""
        now, before = Tables(), self.before
        if self.is_undone:
            assert plain(now) == plain(before), "a rollback has left something behind"
            assert not EVENTS, f"a rollback has sent {EVENTS}"
        succeeded = [work for id, work in now.works.items() if has_ended_well(work, before.works.get(id))]
        if self.is_heard:
            assert_success_events(succeeded)
            assert_insert_events(now, before)
            assert_group_events(now, before)
        self._assert_kept(now, before)
        for id, work in before.works.items():
            if work.status == Status.SUCCESS and id in now.works:
                assert now.works[id].status == Status.SUCCESS, f"{work} had succeeded"
        self._assert_counted(now, succeeded)
        EVENTS.clear()
        self.before = now
        self.steps += 1
        for id in now.works:
            self._first_seen.setdefault(id, self.steps)
        self._expect_as_usual()
        return self

    def _assert_kept(self, now: Tables, before: Tables) -> None:
        """Nothing is gone but what was pruned, and that only from groups that were done."""
        gone = before.works.keys() - now.works.keys()
        assert self.is_pruned or not gone, f"works were deleted: {gone}"
        for group in filter(None, {before.works[id].group_id for id in gone}):
            assert before.groups[group].open == 0, f"works of the open group {group} were deleted"
        now.pruned = before.pruned | {id: before.works[id].group_id for id in gone}

    def _assert_counted(self, now: Tables, succeeded: Sequence[Work]) -> None:
        """Each contribution was folded into its group's value, and once."""
        counting = [work for work in succeeded if self._counts(work)]
        assert all(work.group_id for work in counting), "what differs from the own result needs a group"
        self._counted.update(work.group_id for work in counting)
        for id, group in now.groups.items():
            value = json.loads(group.value) if group.value else 0
            assert value == self._counted[id], f"group {id} has the value {value}, not {self._counted[id]}"

    def _counts(self, work: Work) -> bool:
        if work.completed_by is None:
            return work.id in self.counted_by_hand
        return json.loads(work.input)["plan"].get("counts") == "one"

    def assert_good_end(self) -> None:
        """Nothing can run any more, and what could not be mended waits for something that was not mended."""
        works = self.before.works
        facts = attrgetter("status", "reason", "error", "attempt", "run_at")
        left = [(str(works[id]), *facts(works[id])) for id in self.ids(LIVE - {Status.BLOCKED})]
        assert not left, f"works are left over: {left}"
        for id in self.ids(RETRYABLE):
            missed = [edge for edge in self.before.edges_of[id] if edge.outcome in RETRYABLE]
            lost = [edge for edge in missed if is_lost(self.before.watched_by(edge))]
            assert lost or works[id].reason == "bad_input", f"{works[id]} cannot be mended: {missed}"


def has_ended_well(work: Work, before: Work | None) -> bool:
    return work.status == Status.SUCCESS and (before is None or before.status != Status.SUCCESS)


def is_lost(watched: Work | None) -> bool:
    """Whether a work was pruned or never released, or has ended badly."""
    return watched is None or watched.status in RETRYABLE


def events_of(kind: Kind) -> Counter[Any]:
    return Counter(event.id or event.group_id for event in EVENTS if event.kind == kind)


def assert_success_events(succeeded: Sequence[Work]) -> None:
    """Each success, a gate's too, has one event."""
    assert events_of(Kind.SUCCEEDED) == {work.id: 1 for work in succeeded}


def assert_insert_events(now: Tables, before: Tables) -> None:
    """Each new work has one event; of the others only those can have been queued that had ended badly."""
    queued = events_of(Kind.QUEUED)
    for id in now.works.keys() - before.works.keys():
        assert queued.pop(id) == 1, f"{id} was queued more than once"
    for id in queued:
        assert before.works[id].status in RETRYABLE, f"{before.works[id]} was queued again"


def assert_group_events(now: Tables, before: Tables) -> None:
    """Each group that has settled has one event."""
    sent = events_of(Kind.GROUP_DONE)
    for id, group in now.groups.items():
        earlier = before.groups[id].done_at if id in before.groups else None
        has_settled = group.done_at is not None and group.done_at != earlier
        assert sent[id] == has_settled, f"group {id} settled: {has_settled}, events: {sent[id]}"


def plain(tables: Tables) -> list[Any]:
    """The tables as values that can be compared."""
    rows: list[Model] = [*tables.works.values(), *tables.groups.values(), *tables.waiters.values()]
    return [
        {name: value for name, value in vars(row).items() if name != "_state"}
        for row in [*rows, *tables.edges]
    ]
