"""What must hold of the engine's tables whenever no transaction is open, whatever has happened before."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import AyeworkError
from django_ayework.flow.maintenance import sweep_page
from django_ayework.flow.payloads import decode_releases, stored_release_ids
from django_ayework.models import Attempt, Edge, Group, Waiter, Work
from django_ayework.rules.conditions import Decision, condition_from_plain, decide, tally
from django_ayework.rules.states import LIVE, Status, is_terminal


@dataclass
class Tables:
    """Every row, read at once."""

    works: dict[str, Work] = field(default_factory=lambda: {work.id: work for work in Work.objects.all()})
    groups: dict[str, Group] = field(default_factory=lambda: {g.id: g for g in Group.objects.all()})
    waiters: dict[str, Waiter] = field(default_factory=lambda: {w.work_id: w for w in Waiter.objects.all()})
    edges: list[Edge] = field(default_factory=lambda: list(Edge.objects.order_by("waiter_id", "position")))
    #: Works that were pruned, each with its group, which still counts it.
    pruned: dict[str, str | None] = field(default_factory=dict)

    @cached_property
    def edges_of(self) -> dict[str, list[Edge]]:
        """The edges of each waiter, in order."""
        found: dict[str, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            found[edge.waiter_id].append(edge)
        return found

    @cached_property
    def chains(self) -> dict[str, list[Work]]:
        """The works of each chain, in order; a work that is alone is a chain of one."""
        found: dict[str, list[Work]] = defaultdict(list)
        for work in sorted(self.works.values(), key=lambda work: work.chain_index):
            found[work.chain_id or work.id].append(work)
        return found

    def watched_by(self, edge: Edge) -> Work | None:
        """The work whose end an edge waits for, if there is one now."""
        if edge.chain and edge.watched_id in self.chains:
            return self.chains[edge.watched_id][-1]
        return self.works.get(edge.watched_id)

    @cached_property
    def promised(self) -> dict[str, list[Work]]:
        """By id, the gates that would release a work of this id, themselves or through a gate of theirs."""
        found: dict[str, list[Work]] = defaultdict(list)
        for gate in self.works.values():
            if gate.type == GATE_TYPE and gate.status != Status.SUCCESS:
                for id in stored_release_ids(gate.input):
                    found[id].append(gate)
        return found


def assert_consistent(tables: Tables | None = None) -> None:
    """Assert every invariant, naming all that are broken."""
    broken = list(broken_invariants(tables or Tables()))
    assert not broken, "\n".join(broken)
    assert sweep() == 0, "the sweep found stranded waiters"


def sweep() -> int:
    """Sweep all blocked works; return how many were stranded."""
    found, after = 0, None
    while True:
        page = sweep_page(after)
        found, after = found + page.found, page.next
        if after is None:
            return found


def broken_invariants(tables: Tables) -> Iterator[str]:
    """Say what is broken."""
    for broken in (
        broken_rows,
        broken_groups,
        broken_chains,
        broken_waiters,
        broken_edges,
        broken_promises,
        broken_releases,
        left_behind,
    ):
        yield from broken(tables)


def broken_rows(tables: Tables) -> Iterator[str]:
    """Each status has its columns, and no others."""
    for work in tables.works.values():
        ended, running = is_terminal(work.status), work.status == Status.RUNNING
        expected = {
            "an end": (ended, work.ended_at is not None),
            "a lease": (running, work.leased_until is not None),
            "a worker": (running, work.worker is not None),
            "a reason": (work.status == Status.DEAD, bool(work.reason)),
        }
        for what, (should, has) in expected.items():
            if should != has:
                yield f"{work.status} {work} has {what}: {has}"
        if work.attempt < 0 or work.delivery < 0:
            yield f"{work} has attempt {work.attempt}, delivery {work.delivery}"
        if work.completed_by is not None and not ended:
            yield f"{work.status} {work} was completed by {work.completed_by}"
        if work.status == Status.SUCCESS and work.error:
            yield f"{work} succeeded with the error {work.error}"


def broken_groups(tables: Tables) -> Iterator[str]:
    """A group's counts are those of its rows, and it is done when nothing in it is open."""
    works, groups = tables.works.values(), tables.groups
    members = Counter(work.group_id for work in works if work.group_id)
    pruned = Counter(tables.pruned.values())
    live = Counter(work.group_id for work in works if work.status in LIVE)
    dead = Counter(work.group_id for work in works if work.status == Status.DEAD)
    yield from (f"group {id} has works but no row" for id in members if id not in groups)
    for id, group in groups.items():
        if not members[id] + pruned[id]:
            yield f"group {id} has no works left"
        counted = (live[id], members[id] + pruned[id], dead[id])
        written = (group.open, group.total, group.dead)
        if counted != written:
            yield f"group {id} says (open, total, dead) = {written}, its rows say {counted}"
        if (group.done_at is not None) != (group.open == 0):
            yield f"group {id} has {group.open} open and done_at {group.done_at}"


def broken_chains(tables: Tables) -> Iterator[str]:
    """A chain counts up from its first work without a gap, and every step but the last has succeeded."""
    for id, steps in tables.chains.items():
        indexes = [step.chain_index for step in steps]
        if indexes != list(range(indexes[0], indexes[0] + len(steps))):
            yield f"chain {id} has the steps {indexes}"
        if any(step.chain_id is None for step in steps) and (len(steps) > 1 or indexes != [0]):
            yield f"chain {id} has a step without its chain_id: {[step.chain_id for step in steps]}"
        for step in steps[:-1]:
            if step.status != Status.SUCCESS:
                yield f"{step} is {step.status}, and its chain {id} has gone on"


def broken_waiters(tables: Tables) -> Iterator[str]:
    """A waiter's counts are its edges' outcomes; none that is blocked is decided; none awaits a look."""
    for work in tables.works.values():
        if work.status == Status.BLOCKED and work.id not in tables.waiters:
            yield f"blocked {work} waits for nothing"
    for id, waiter in tables.waiters.items():
        counted = tally([edge.outcome for edge in tables.edges_of[id]])
        written = (waiter.total, waiter.succeeded, waiter.missed)
        if written != (counted.total, counted.succeeded, counted.missed):
            yield f"waiter {id} says (total, succeeded, missed) = {written}, its edges say {counted}"
        if waiter.recheck:
            yield f"waiter {id} still awaits its second look"
        if id in tables.works:
            yield from broken_decisions(tables.works[id], waiter, counted)


def broken_decisions(work: Work, waiter: Waiter, counted) -> Iterator[str]:
    """What has become of a waiter is what its edges say."""
    decision = decide(condition_from_plain(json.loads(waiter.condition)), counted)
    waits_on = decision is Decision.WAIT or (decision is Decision.NEVER and waiter.on_unmet == "wait")
    if work.status == Status.BLOCKED and not waits_on:
        yield f"{work} is blocked although its edges say {decision}"
    if work.reason == "unsatisfiable" and (decision is not Decision.NEVER or waits_on):
        yield f"{work} is dead as unsatisfiable although its edges say {decision}, unmet {waiter.on_unmet}"
    if work.status in LIVE - {Status.BLOCKED} and decision is not Decision.MET:
        yield f"{work} is {work.status} although its edges say {decision}"


def broken_edges(tables: Tables) -> Iterator[str]:
    """An edge says how the work, or the last one of the chain, ended; nothing while it lives."""
    for edge in tables.edges:
        watched = tables.watched_by(edge)
        if watched is not None:
            actual = watched.status if is_terminal(watched.status) else ""
            if edge.outcome != actual:
                yield f"{edge} has the outcome {edge.outcome!r}, {watched} is {watched.status}"


def broken_promises(tables: Tables) -> Iterator[str]:
    """What a gate has not released counts as cancelled once the gate has ended so, and only then.

    A waiter that was born after the gate's end waits for an id like any other that nobody has queued.
    """
    for edge in tables.edges:
        gates = tables.promised.get(edge.watched_id, ())
        waiter = tables.works.get(edge.waiter_id)
        if len(gates) != 1 or waiter is None or edge.watched_id in tables.works:
            continue
        gate = gates[0]
        if gate.ended_at is None and edge.outcome:
            yield f"{edge} has the outcome {edge.outcome!r}, but {gate} may still release the work"
        if gate.ended_at is not None and waiter.queued_at < gate.ended_at and edge.outcome != "cancelled":
            yield f"{edge} has the outcome {edge.outcome!r}, but {gate} is {gate.status}"


def broken_releases(tables: Tables) -> Iterator[str]:
    """An open gate has released each of its works once, any other gate none."""
    works = tables.works
    born: dict[str, set[str]] = defaultdict(set)
    for work in works.values():
        born[work.parent_id or ""].add(work.id)
    for gate in works.values():
        if gate.type != GATE_TYPE:
            continue
        try:
            promised = {release.id for release in decode_releases(gate.input)}
        except AyeworkError:
            continue
        released = born[gate.id]
        missing = promised - works.keys() - tables.pruned.keys()
        if gate.status == Status.SUCCESS and missing:
            yield f"gate {gate.id} opened without releasing {missing}"
        if released - promised or (gate.status != Status.SUCCESS and released):
            yield f"gate {gate.id} ({gate.status}) released {released} of {promised}"


def left_behind(tables: Tables) -> Iterator[str]:
    """What belongs to a work goes with it."""
    owned = {
        "waiter": set(tables.waiters),
        "edge": {edge.waiter_id for edge in tables.edges},
        "attempt": set(Attempt.objects.values_list("work_id", flat=True)),
    }
    for what, ids in owned.items():
        yield from (f"{what} of {id}, which is gone" for id in ids - tables.works.keys())
