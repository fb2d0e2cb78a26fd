"""Works of one call that wait for one another in a circle, which is refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from django_ayework.define.requests import GATE_TYPE, GateRequest, WorkRequest
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.new_works import NewWork
from django_ayework.rules.circles import Need, circle
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
