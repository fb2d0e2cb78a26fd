"""What must hold of the engine's tables whenever no transaction is open, whatever has happened before."""

from __future__ import annotations

import json
from collections import Counter

from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import AyeworkError
from django_ayework.flow.chores import sweep
from django_ayework.flow.gate_payload import decode_releases
from django_ayework.models import Edge, Group, Waiter, Work
from django_ayework.rules.conditions import Decision, condition_from_plain, decide, tally
from django_ayework.rules.states import LIVE, Status, is_terminal


def assert_consistent() -> None:
    """Assert every invariant, naming all that are broken."""
    works = {work.id: work for work in Work.objects.all()}
    broken = [
        *broken_rows(works),
        *broken_groups(works),
        *broken_waiters(works),
        *broken_edges(works),
        *broken_releases(works),
    ]
    assert not broken, "\n".join(broken)
    assert sweep() == 0, "the sweep found stranded waiters"


def broken_rows(works: dict[str, Work]) -> list[str]:
    """Each status has its columns, and no others."""
    broken = []
    for work in works.values():
        ended, running = is_terminal(work.status), work.status == Status.RUNNING
        expected = {
            "an end": (ended, work.ended_at is not None),
            "a lease": (running, work.leased_until is not None),
            "a worker": (running, work.worker is not None),
            "a reason": (work.status == Status.DEAD, bool(work.reason)),
        }
        broken += [
            f"{work.status} {work} has {what}: {has}"
            for what, (should, has) in expected.items()
            if should != has
        ]
        if work.attempt < 0 or work.delivery < 0:
            broken.append(f"{work} has attempt {work.attempt}, delivery {work.delivery}")
        if work.status == Status.SUCCESS and work.error:
            broken.append(f"{work} succeeded with the error {work.error}")
    return broken


def broken_groups(works: dict[str, Work]) -> list[str]:
    """A group's counts are those of its rows, and it is done when nothing in it is open."""
    groups = {group.id: group for group in Group.objects.all()}
    members = Counter(work.group_id for work in works.values() if work.group_id)
    live = Counter(work.group_id for work in works.values() if work.status in LIVE)
    dead = Counter(work.group_id for work in works.values() if work.status == Status.DEAD)
    broken = [f"group {id} has works but no row" for id in members if id not in groups]
    for id, group in groups.items():
        counted = (live[id], members[id], dead[id])
        written = (group.open, group.total, group.dead)
        if counted != written:
            broken.append(f"group {id} says (open, total, dead) = {written}, its rows say {counted}")
        if (group.done_at is not None) != (group.open == 0):
            broken.append(f"group {id} has {group.open} open and done_at {group.done_at}")
    return broken


def broken_waiters(works: dict[str, Work]) -> list[str]:
    """A waiter's counts are its edges' outcomes; none that is blocked is decided; none awaits a look."""
    outcomes: dict[str, list[str]] = {}
    for waiter, outcome in Edge.objects.values_list("waiter_id", "outcome"):
        outcomes.setdefault(waiter, []).append(outcome)
    broken = [
        f"blocked {work} waits for nothing"
        for work in works.values()
        if work.status == Status.BLOCKED and not Waiter.objects.filter(work_id=work.id).exists()
    ]
    for waiter in Waiter.objects.all():
        counted = tally(outcomes.get(waiter.work_id, []))
        written = (waiter.total, waiter.succeeded, waiter.missed)
        if written != (counted.total, counted.succeeded, counted.missed):
            broken.append(f"waiter {waiter} says (total, succeeded, missed) = {written}, its edges {counted}")
        decision = decide(condition_from_plain(json.loads(waiter.condition)), counted)
        work = works.get(waiter.work_id)
        waits_on = decision is Decision.WAIT or (decision is Decision.NEVER and waiter.on_unmet == "wait")
        if work is not None and work.status == Status.BLOCKED and not waits_on:
            broken.append(f"{work} is blocked although its edges say {decision}")
        if work is not None and work.reason == "unsatisfiable" and decision is not Decision.NEVER:
            broken.append(f"{work} is dead as unsatisfiable although its edges say {decision}")
        if waiter.recheck:
            broken.append(f"waiter {waiter} still awaits its second look")
    return broken


def broken_edges(works: dict[str, Work]) -> list[str]:
    """An edge says how the work, or the last one of the chain, ended; nothing while it lives."""
    broken = []
    steps = sorted(works.values(), key=lambda work: work.chain_index)
    last = {work.chain_id or work.id: work for work in steps}
    for edge in Edge.objects.all():
        watched = (last if edge.chain else works).get(edge.watched_id)
        if watched is not None:
            actual = watched.status if is_terminal(watched.status) else ""
            if edge.outcome != actual:
                broken.append(f"{edge} has the outcome {edge.outcome!r}, {watched} is {watched.status}")
    return broken


def broken_releases(works: dict[str, Work]) -> list[str]:
    """An open gate has released each of its works once, any other gate none."""
    broken = []
    for gate in works.values():
        if gate.type != GATE_TYPE:
            continue
        try:
            promised = {release.id for release in decode_releases(gate.input)}
        except AyeworkError:
            continue
        released = {id for id, work in works.items() if work.parent_id == gate.id}
        if gate.status == Status.SUCCESS and not promised <= works.keys():
            broken.append(f"gate {gate.id} opened without releasing {promised - works.keys()}")
        if released - promised or (gate.status != Status.SUCCESS and released):
            broken.append(f"gate {gate.id} ({gate.status}) released {released} of {promised}")
    return broken
