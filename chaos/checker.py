"""Compares the ledgers of a run with the database, after the workers have stopped."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from chaos.processes import CONCURRENCY
from chaos.recorded import COMMITTED, ROLLED_BACK, UNKNOWN, Promise, Recorded
from chaos.tables import GATE, Attempt, Tables, Work

LOST, DOUBLED, STUCK, WRONG = "lost", "doubled", "stuck", "wrong"
#: Works whose effect and end are one transaction.
EXACT = {"chaos.atomic", "chaos.staged", "chaos.join", "chaos.atomic_fan"}
#: Works with a single attempt.
ONCE = {"chaos.once", "chaos.once_async"}
#: How many works a worker of the harness can begin in one moment: one per slot, and one on the event loop.
BEGIN_TOGETHER = CONCURRENCY + 1
#: The largest accepted difference between the clocks of two processes, in seconds.
CLOCKS = 0.25
#: What a database driver's error is called in a traceback.
DATABASE_ERRORS = ("OperationalError", "InterfaceError", "InternalError", "DatabaseError")


class Finding(NamedTuple):
    """Something that should not be."""

    category: str
    id: str
    text: str


@dataclass
class Case:
    """What is compared, and what the fault explains."""

    recorded: Recorded
    tables: Tables
    is_outage: bool = False
    loses_leases: bool = False


def check(case: Case) -> list[Finding]:
    """Return everything that should not be, each once."""
    return list(dict.fromkeys(finding for one in CHECKS for finding in one(case)))


# --- the ledgers themselves ----------------------------------------------------------------------------


def check_ledgers(case: Case) -> Iterator[Finding]:
    """No line is missing, and each call has an outcome, unless its process was killed."""
    for gap in case.recorded.gaps:
        yield Finding(LOST, "", f"the ledger {gap}")
    for key, promise in case.recorded.promises.items():
        if not promise.outcome and promise.pid not in case.recorded.killed_enqueuers:
            yield Finding(
                LOST, key, f"the ledger does not say what became of the call {key} ({promise.kind})"
            )


# --- calls and what they queued ------------------------------------------------------------------------


def check_calls(case: Case) -> Iterator[Finding]:
    """What was committed is there, what was rolled back is not, and what is unknown is whole or absent."""
    works = case.tables.works
    for key, promise in case.recorded.promises.items():
        there = [id for id in promise.ids if id in works]
        if promise.outcome == COMMITTED:
            for id in promise.handles:
                if id not in works:
                    yield Finding(LOST, id, f"the {promise.kind} was committed, and is not there")
        elif promise.outcome == ROLLED_BACK:
            for id in there:
                yield Finding(DOUBLED, id, f"the {promise.kind} was rolled back, and is there")
            for id in set(promise.ids) & case.recorded.started.keys():
                yield Finding(DOUBLED, id, f"the {promise.kind} was rolled back, and has run")
        elif there and len(there) != len(promise.ids):
            yield Finding(LOST, key, f"of the call {key}, {len(there)} of {len(promise.ids)} works are there")


def check_origins(case: Case) -> Iterator[Finding]:
    """Each work was asked for by a call, or queued by a work that is there."""
    asked, works = case.recorded.asked, case.tables.works
    for work in works.values():
        if work.id not in asked and (work.parent_id is None or work.parent_id not in works):
            yield Finding(DOUBLED, work.id, f"the {work.type} was queued by nobody")
    for id, kind in case.tables.effects:
        if id not in works and kind != "noise":
            yield Finding(DOUBLED, id, f"there is an effect ({kind}) of a work that is not there")


def check_ends(case: Case) -> Iterator[Finding]:
    """Each work has ended, as it was to end, and was not announced twice."""
    for work in case.tables.works.values():
        expected = "dead" if work.type == "chaos.doomed" or is_lost_once(case, work) else "success"
        if work.is_live:
            yield Finding(STUCK, work.id, f"the {work.type} is still {work.status}, attempt {work.attempt}")
        elif work.status != expected:
            error = " ".join(work.error.split())[:160]
            yield Finding(LOST, work.id, f"the {work.type} is {work.status} ({work.reason}): {error}")
    for id, times in case.recorded.settled.items():
        if id in case.tables.works and times > 1:
            yield Finding(DOUBLED, id, f"the {case.tables.works[id].type} was settled {times} times")
        if id in case.tables.works and case.tables.works[id].is_live:
            yield Finding(DOUBLED, id, "it was announced as ended, and has not ended")


def is_lost_once(case: Case, work: Work) -> bool:
    """Whether a single attempt was lost with its worker after it had begun, or after that was noted."""
    if work.type not in ONCE or work.error != "worker lost":
        return False
    return bool(case.recorded.runs_of(work.id)) or work.begun_delivery == work.delivery


def check_beginnings(case: Case) -> Iterator[Finding]:
    """A worker that is lost takes no more works along than it can begin in that moment."""
    unmade = {work.id for work in case.tables.works.values() if is_lost_once(case, work)} - {
        id for id, _ in case.recorded.handlers
    }
    lost_by = Counter(attempt.worker for attempt in case.tables.attempts if attempt.work_id in unmade)
    for worker, count in lost_by.items():
        if count > BEGIN_TOGETHER:
            text = f"{count} works with one attempt were noted as begun by the worker, and were not run"
            yield Finding(LOST, worker, text)


def check_runs(case: Case) -> Iterator[Finding]:
    """Whatever has succeeded has run to its end at least once."""
    for work in case.tables.works.values():
        if work.status == "success" and work.type != GATE and work.id not in case.recorded.ran:
            yield Finding(LOST, work.id, f"the {work.type} has succeeded, and no handler has ended well")


def check_single_attempts(case: Case) -> Iterator[Finding]:
    """A single attempt is made once, unless its worker was told to stop and has released the work."""
    told_to_stop = case.recorded.excused - case.recorded.disturbed
    for work in case.tables.works.values():
        if work.type in ONCE:
            runs = case.recorded.runs_of(work.id)
            if sum(run.end == "ok" or run.pid not in told_to_stop for run in runs) > 1:
                yield Finding(DOUBLED, work.id, f"the {work.type} has run {len(runs)} times")


def check_effects(case: Case) -> Iterator[Finding]:
    """What is written in the transaction of an end is there once for a success, else not at all."""
    counts = Counter(id for id, kind in case.tables.effects if kind == "once")
    for work in case.tables.works.values():
        if work.type in EXACT:
            expected = 1 if work.status == "success" else 0
            if counts[work.id] != expected:
                category = DOUBLED if counts[work.id] > expected else LOST
                yield Finding(
                    category, work.id, f"the {work.status} {work.type} has {counts[work.id]} effects"
                )


# --- what calls lead to --------------------------------------------------------------------------------


def check_consequences(case: Case) -> Iterator[Finding]:
    """Fan-outs, groups, chains and blocked works are complete and exact."""
    for promise in case.recorded.promises.values():
        checked = CONSEQUENCES.get(promise.kind)
        roots = [case.tables.works.get(id) for id in promise.ids]
        whole = [root for root in roots if root is not None]
        if checked and promise.outcome in (COMMITTED, UNKNOWN) and len(whole) == len(roots):
            yield from checked(case, promise, whole)


def check_fan(case: Case, promise: Promise, roots: list[Work]) -> Iterator[Finding]:
    """A fan-out has each leaf once, one gate, and one work that the gate has released."""
    [root] = roots
    if root.status != "success":
        return
    members = case.tables.by_group[root.id]
    counts = Counter(work.type for work in members if work is not root)
    gates = [work for work in members if work.type == GATE]
    expected = {"chaos.leaf": len(promise.facts["values"]), GATE: 1}
    if all(gate.status == "success" for gate in gates):
        expected["chaos.join"] = 1
    for type in {*counts, *expected}:
        yield from compare(root.id, f"{type} of the fan-out", counts[type], expected.get(type, 0))
    yield from check_value(case, root.id, sum(promise.facts["values"]), members)


def check_together(case: Case, promise: Promise, roots: list[Work]) -> Iterator[Finding]:
    """The value of a group is the sum of its works'."""
    yield from check_value(case, roots[0].id, sum(promise.facts["values"]), roots)


def check_value(case: Case, id: str, expected: int, members: list[Work]) -> Iterator[Finding]:
    """A group counts its members, and once all have succeeded its value is exact."""
    group = case.tables.groups.get(id)
    if group is None:
        yield Finding(LOST, id, "the group is not there")
        return
    yield from compare(id, "works counted by the group", group.total, len(case.tables.by_group[id]))
    live = sum(work.is_live for work in case.tables.by_group[id])
    if group.open != live:
        yield Finding(STUCK, id, f"the group says that {group.open} works are open; {live} are")
    if all(work.status == "success" for work in members):
        value = json.loads(group.value) if group.value is not None else 0
        yield from compare(id, "the value of the group", value, expected)


def check_chain(case: Case, promise: Promise, roots: list[Work]) -> Iterator[Finding]:
    """A chain has each step once, and its last result is their number."""
    yield from check_steps(case, roots[0], promise.facts["steps"])


def check_blocked(case: Case, promise: Promise, roots: list[Work]) -> Iterator[Finding]:
    """A blocked work was given the results of the chains that blocked it."""
    *chains, waits = roots
    for root, steps in zip(chains, promise.facts["lengths"], strict=True):
        yield from check_steps(case, root, steps)
    if waits.status == "success":
        result = json.loads(waits.result or "null")
        yield from compare(
            waits.id, "the sum of the blockers' results", result, sum(promise.facts["lengths"])
        )


def check_steps(case: Case, root: Work, expected: int) -> Iterator[Finding]:
    """The steps of one chain. They are a group, to which the last one contributes the result."""
    steps = case.tables.by_chain[root.id]
    if len(steps) > 1:
        yield from check_value(case, root.id, expected, steps)
    if any(step.status != "success" for step in steps):
        return  # that is a finding of its own
    yield from compare(root.id, "steps of the chain", len(steps), expected)
    yield from compare(root.id, "the result of the chain", json.loads(steps[-1].result or "null"), expected)


def compare(id: str, what: str, found: int | None, expected: int) -> Iterator[Finding]:
    """More than expected is doubled, less is lost."""
    if found != expected:
        category = DOUBLED if (found or 0) > expected else LOST
        yield Finding(category, id, f"{what}: {found} instead of {expected}")


CONSEQUENCES: dict[str, Callable[[Case, Promise, list[Work]], Iterator[Finding]]] = {
    "fan": check_fan,
    "together": check_together,
    "chain": check_chain,
    "blocked": check_blocked,
}


def check_keys(case: Case) -> Iterator[Finding]:
    """Of each key, and of each unit, there was one live work at a time."""
    by_key: dict[str, list[Work]] = defaultdict(list)
    for work in case.tables.works.values():
        for key in (work.dedup_key, work.unit):
            if key:
                by_key[key].append(work)
    for key, works in by_key.items():
        works.sort(key=lambda work: work.queued_at)
        for one, other in pairwise(works):
            if one.ended_at is None or other.queued_at < one.ended_at - CLOCKS:
                yield Finding(DOUBLED, other.id, f"of {key!r} there was another live work, {one.id}")


# --- attempts and moments ------------------------------------------------------------------------------


def check_attempts(case: Case) -> Iterator[Finding]:
    """Each counted attempt is one that succeeded, that the handler failed, or whose worker was lost."""
    counted: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in case.tables.attempts:
        if attempt.outcome != "deferred":
            counted[attempt.work_id].append(attempt)
    for work in case.tables.works.values():
        if work.type == GATE or work.is_live:
            continue
        spent = len(counted[work.id]) + (work.status == "success")
        if work.attempt != spent:
            yield Finding(
                WRONG, work.id, f"the {work.type} counts {work.attempt} attempts; {spent} are known"
            )
        for attempt in counted[work.id]:
            if not is_explained(case, work, attempt):
                error = " ".join(attempt.error.split())[:120]
                text = f"attempt {attempt.number} of the {work.type} was spent ({attempt.outcome}): {error}"
                yield Finding(WRONG, work.id, text)


def is_explained(case: Case, work: Work, attempt: Attempt) -> bool:
    """Whether the ledgers tell why an attempt did not succeed."""
    handlers = case.recorded.handlers.get((work.id, attempt.number), ())
    if attempt.outcome == "lost":
        # A claim whose answer is lost with its connection is a lease that nobody knows of.
        is_unanswered = case.is_outage and not handlers
        pid = case.recorded.workers.get(attempt.worker)
        return is_unanswered or case.loses_leases or pid in case.recorded.disturbed
    if any(handler.end == "fail" for handler in handlers):
        return True
    # The transaction of an atomic or staged work is the handler's: what the database refuses is its failure.
    is_refused = any(name in attempt.error for name in DATABASE_ERRORS)
    return case.is_outage and work.type in EXACT and is_refused


def check_workers(case: Case) -> Iterator[Finding]:
    """No worker has died by itself, and each has stopped when it was told to."""
    for pid, status in case.recorded.failed.items():
        if pid not in case.recorded.excused:
            yield Finding(WRONG, f"pid {pid}", f"the worker ended by itself, with status {status}")
    for pid in case.recorded.overdue:
        yield Finding(WRONG, f"pid {pid}", "the worker was told to stop, and had to be killed")


def check_starts(case: Case) -> Iterator[Finding]:
    """No work has started before its time."""
    for promise in case.recorded.promises.values():
        if promise.kind != "delayed" or promise.outcome != COMMITTED:
            continue
        began = case.recorded.started.get(promise.ids[0])
        early = promise.began + promise.facts["delay"] - began if began is not None else 0.0
        if early > CLOCKS:
            yield Finding(WRONG, promise.ids[0], f"the work has started {early:.1f} s too early")


CHECKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    check_ledgers,
    check_calls,
    check_origins,
    check_ends,
    check_runs,
    check_beginnings,
    check_single_attempts,
    check_effects,
    check_consequences,
    check_keys,
    check_attempts,
    check_workers,
    check_starts,
)


def longest_recovery(recorded: Recorded) -> float | None:
    """Return the longest time from the end of a fault to the next success; None if there was no fault."""
    waits = [
        next((at - end for at in recorded.successes if at >= end), None)
        for end in sorted(recorded.fault_ends)
    ]
    known = [wait for wait in waits if wait is not None]
    return max(known) if known else None
