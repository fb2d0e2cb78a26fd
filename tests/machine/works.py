"""Works that do what their input says, so that a random value is a random workflow.

A plan is a mapping; what it does not mention is not done:

    mode       "atomic" or "staged": the completion mode
    fails      this many attempts fail first
    aborts     it gives up
    defers     it comes back once, later
    queue      plans to queue
    blocked    plans to queue, blocked by those of "queue"
    links      of ``.next``: pairs of a condition and plans
    gate       a dependency to queue, over those of "queue" and over "on"
    goes_on    the plan of the chain's next work; with "patient" blocked by those of "queue"
    cleans     it queues a work that waits for the end of this chain
    counts     "one" adds 1 to the group's value, "broken" fails while adding
    after      ids of chains that block it
    delay      seconds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from django_ayework import Abort, Context, Count, Defer, Retry, WorkRequest, dependency, work

Plan = dict[str, Any]
RETRY = Retry(attempts=2, base=30, jitter=0)
#: The works that have come back: a claim would be rolled back with the transaction of an atomic work.
DEFERRED: set[str] = set()
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


class Broken(Exception):
    """What a plan is told to raise."""


def options_of(plan: Plan) -> dict[str, Any]:
    return {"delay": plan.get("delay"), "blockers": plan.get("after")}


@work(name="machine.plain", retry=RETRY, options=options_of)
def plain(ctx: Context, plan: Plan):
    obey(ctx, plan)
    return instruction_of(ctx, plan)


@work(name="machine.atomic", retry=RETRY, options=options_of, atomic=True)
def atomic(ctx: Context, plan: Plan):
    obey(ctx, plan)
    return instruction_of(ctx, plan)


@work(name="machine.staged", retry=RETRY, options=options_of)
def staged(ctx: Context, plan: Plan):
    with ctx.prepare():
        obey(ctx, plan)
    with ctx.complete():
        return instruction_of(ctx, plan)


TYPES = {"atomic": atomic, "staged": staged}


def request_of(plan: Plan) -> WorkRequest:
    return TYPES.get(plan.get("mode", ""), plain)(plan=plan)


def requests_of(plans: Sequence[Plan]) -> list[WorkRequest]:
    return [request_of(plan) for plan in plans]


def gate_of(gate: Plan, watched: Sequence[WorkRequest] = ()) -> WorkRequest:
    """A dependency; one of its releases may be a gate over the others."""
    on = [*watched, *gate["on"]]
    releases = requests_of(gate["releases"])
    if "inner" in gate:
        releases.append(gate_of(gate["inner"], releases))
    condition = condition_of(gate["condition"], len({getattr(item, "id", item) for item in on}))
    return dependency(on, releases, condition, timeout=gate.get("timeout"), on_unmet=gate["on_unmet"])


def condition_of(plain: Any, watched: int) -> Any:
    """A condition that so many works can meet."""
    return Count(min(plain[0], watched), plain[1]) if isinstance(plain, list) else plain


def obey(ctx: Context, plan: Plan) -> None:
    """Fail as the plan says."""
    if plan.get("defers") and ctx.id not in DEFERRED:
        DEFERRED.add(ctx.id)
        raise Defer(delay=40)
    if plan.get("aborts"):
        raise Abort("the plan says so")
    if ctx.attempt <= plan.get("fails", 0):
        raise Broken(f"attempt {ctx.attempt}")


def instruction_of(ctx: Context, plan: Plan):
    """Say what the plan says."""
    queued = requests_of(plan.get("queue", ()))
    items: list[Any] = [*queued]
    if "blocked" in plan:
        items.append(ctx.queue(requests_of(plan["blocked"]), blockers=queued))
    if "gate" in plan:
        items.append(gate_of(plan["gate"], queued))
    if plan.get("cleans"):
        items.append(ctx.queue([request_of({})], blockers=[ctx.chain_id]))
    if "goes_on" in plan:
        blockers = {"blockers": queued} if plan.get("patient") else {}
        items.append(ctx.continue_with(request_of(plan["goes_on"]), **blockers))
    if "counts" in plan:
        items.append(ctx.result(0, append=one_more if plan["counts"] == "one" else broken))
    if len(items) < 2 and "links" not in plan and not queued:
        return items[0] if items else ctx.void()
    instruction = ctx.queue(items)
    watched = sum(1 for _ in instruction.last_watched())
    for condition, plans in plan.get("links", ()):
        instruction.next(requests_of(plans), condition_of(condition, watched))
        watched = len(plans)
    return instruction


def one_more(total: int | None) -> int:
    return (total or 0) + 1


def broken(total: int | None) -> int:
    raise Broken("while adding")


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
