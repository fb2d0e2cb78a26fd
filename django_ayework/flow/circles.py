"""Works that wait for one another in a circle never start. The call that would queue them is refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from django_ayework.define.requests import GATE_TYPE, GateRequest, WorkRequest
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.new_works import NewWork
from django_ayework.rules.conditions import requirement
from django_ayework.store.rows import statuses_of

#: Works of a circle that a message names.
NAMED = 10


def require_no_circle(new_works: Sequence[NewWork]) -> None:
    """Raise InvalidInstruction for new works and gates that wait for one another, or for themselves.

    Works that exist already do not wait for the gates that would queue them.
    """
    needs = needs_of(new_works) if any(each.gate or each.blockers for each in new_works) else {}
    if circle(needs):
        existing = statuses_of(needs)
        if found := circle({id: each for id, each in needs.items() if id not in existing}):
            raise circular(new_works, found)


def needs_of(new_works: Sequence[NewWork]) -> dict[str, list[Need]]:
    """Return what new works wait for; the works that gates among them are to queue wait for the gates."""
    needs: dict[str, list[Need]] = defaultdict(list)
    gates_of: dict[str, list[str]] = defaultdict(list)
    last_of = {each.row.chain_id: each.row.id for each in new_works if each.row.chain_id is not None}
    for each in new_works:
        if each.blockers:
            needs[each.row.id].append(Need(len(each.blockers), [last_of.get(id, id) for id in each.blockers]))
    gates = [each.gate for each in new_works if each.gate is not None]
    while gates:
        gate = gates.pop()
        needs[gate.id].append(Need(requirement(gate.condition, len(gate.watched))[0], gate.watched))
        for work in gate.releases:
            gates_of[work.id].append(gate.id)
            if isinstance(work, GateRequest):
                gates.append(work)
            elif blockers := list(work.options.get("blockers", ())):
                needs[work.id].append(Need(len(blockers), blockers))
    queued = {each.row.id for each in new_works}
    for id, those in gates_of.items():
        if id not in queued:
            needs[id].append(Need(1, those))
    return dict(needs)


def circular(new_works: Sequence[NewWork], ids: Sequence[str]) -> InvalidInstruction:
    """Return the error for a circle of works. Each waits for the next, and the last for the first."""
    requests: list[WorkRequest[Any, Any]] = [each.gate for each in new_works if each.gate is not None]
    types = {each.row.id: each.row.type for each in new_works}
    while requests:
        request = requests.pop()
        types[request.id] = request.type
        requests += getattr(request, "releases", ())
    named = [f"{'gate' if types[id] == GATE_TYPE else types[id]} {id}" for id in (*ids, ids[0])]
    if len(named) > NAMED:
        named[NAMED - 1 : -1] = [f"… {len(named) - NAMED} more"]
    return InvalidInstruction(
        f"expected works that can start, got works that wait for one another: {' → '.join(named)}; "
        "none of them would ever start. Take one of them out of on=, queue= or blockers=.",
        id=ids[0],
        code="works-in-a-circle",
    )


# The circle among needs


class Need(NamedTuple):
    """The end of so many of these works, for which a work waits."""

    number: int
    of: Sequence[str]


#: What works wait for, by their ids: the needs of each must all be met. Other works wait for nothing.
Needs: TypeAlias = Mapping[str, Sequence[Need]]


def circle(needs: Needs) -> list[str]:
    """Return a circle of works: each waits for the next, and the last for the first. Empty without a circle.

    >>> circle({"a": [Need(1, ["b"])], "b": [Need(2, ["c", "a"])]})
    ['a', 'b']
    >>> circle({"a": [Need(1, ["b"])], "b": [Need(1, ["c", "a"])]})
    []
    """
    stuck = never_met(needs)
    path: dict[str, int] = {}
    id = next(iter(stuck), None)
    while id is not None and id not in path:
        path[id] = len(path)
        id = next(
            other
            for need in needs[id]
            if sum(each not in stuck for each in need.of) < need.number
            for other in need.of
            if other in stuck
        )
    return [] if id is None else list(path)[path[id] :]


def never_met(needs: Needs) -> dict[str, int]:
    """Return the works whose needs cannot all be met, with how many: all others may end, in some order."""
    waiting = {id: len(of_one) for id, of_one in needs.items()}
    lacking: list[tuple[str, int]] = []  # the work of each need, and how many ends it lacks
    needed_by: dict[str, list[int]] = defaultdict(list)
    for id, of_one in needs.items():
        for need in of_one:
            held = [other for other in need.of if other in needs]
            for other in held:
                needed_by[other].append(len(lacking))
            lacking.append((id, need.number - len(need.of) + len(held)))
            waiting[id] -= lacking[-1][1] <= 0
    free = [id for id, number in waiting.items() if not number]
    while free:
        ended = free.pop()
        del waiting[ended]
        for place in needed_by[ended]:
            id, lack = lacking[place]
            lacking[place] = id, lack - 1
            if lack == 1:
                waiting[id] -= 1
                if not waiting[id]:
                    free.append(id)
    return waiting
