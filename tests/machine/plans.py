"""Random plans. Works that exist are named by numbers, which become ids when the plan is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.machine.works import Plan

#: An id that no work ever has.
NOBODY = "nobody"

numbers = st.integers(0, 63)
conditions = st.sampled_from(
    ["all-success", "all-success", "all-done", *([n, of] for n in (1, 2) for of in ("done", "success"))]
)

#: How a work behaves, and how it ends; most do well.
manners = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["plain", "plain", "atomic", "staged"]),
        "fails": st.sampled_from([0, 0, 1, 2]),
        "defers": st.booleans(),
        "delay": st.just(60),
        "counts": st.sampled_from(["one", "one", "one", "broken"]),
        "cleans": st.booleans(),
        "after": st.lists(numbers, min_size=1, max_size=2),
    },
)
leaves = st.one_of(manners, st.just({"aborts": True}))


@st.composite
def plans(draw: Any, depth: int = 2) -> Plan:
    """A plan that queues plans, so many levels deep at most."""
    kind = draw(st.sampled_from(["leaf", "step", "fan-out"])) if depth else "leaf"
    if kind == "leaf":
        return draw(leaves)
    inner = plans(depth - 1)
    plan: Plan = draw(manners)
    if kind == "step":
        return plan | {"goes_on": draw(inner)}
    plan["queue"] = draw(some(inner, 1, 3))
    if draw(st.booleans()):
        plan["links"] = draw(some(st.tuples(conditions, some(inner, 1, 2)).map(list), 1, 2))
    extra = draw(st.sampled_from(["", "blocked", "gate", "goes_on"]))
    if extra == "blocked":
        plan["blocked"] = draw(some(inner, 1, 2))
    if extra == "gate":
        plan["gate"] = draw(gates(depth - 1))
    if extra == "goes_on":
        plan |= {"goes_on": draw(inner), "patient": draw(st.booleans())}
    return plan


@st.composite
def gates(draw: Any, depth: int = 1) -> Plan:
    """What a gate watches and releases; now and then it holds another gate, over its releases."""
    gate: Plan = {
        "on": draw(some(numbers)),
        "releases": draw(some(plans(depth), most=2)),
        "condition": draw(conditions),
        "on_unmet": draw(st.sampled_from(["dead", "dead", "wait"])),
        "timeout": draw(st.sampled_from([None, None, 90])),
    }
    if depth and draw(st.booleans()):
        gate["inner"] = draw(gates(0))
    return gate


def some(strategy: st.SearchStrategy[Any], least: int = 0, most: int = 3) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, min_size=least, max_size=most)


def resolved(plan: Any, ids: Mapping[str, Sequence[str]]) -> Any:
    """The plan with ids in place of numbers: ``ids`` are those that "on" and "after" choose from."""
    if isinstance(plan, dict):
        return {
            key: named(value, ids[key]) if key in ids else resolved(value, ids) for key, value in plan.items()
        }
    return [resolved(item, ids) for item in plan] if isinstance(plan, list) else plan


def named(chosen: Sequence[int], ids: Sequence[str]) -> list[str]:
    """The ids of these numbers, small ones being the latest works; now and then one that there is not."""
    return list(dict.fromkeys(NOBODY if n % 16 == 15 else ids[-1 - n % len(ids)] for n in chosen if ids))
