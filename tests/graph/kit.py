"""What the tests of graphs share: reading a graph by the types of its nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django_ayework import Context, enqueue, work
from django_ayework.define.requests import GATE_TYPE, new_uuid7
from django_ayework.flow.graph import Workflow, read_workflow
from django_ayework.models import Edge, Work
from django_ayework.rules.workflow import Folded, Link, Member, Tie, fold
from django_ayework.testing import drain
from django_ayework.testing.factories import GroupFactory, WaiterFactory, WorkFactory
from tests.gates.works import BROKEN, flow

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@work(name="graph.chained")
def chained(ctx: Context, left: int) -> Any:
    return ctx.continue_with(chained(left=left - 1)) if left else 17


def dead_workflow(first: str = "ab") -> str:
    """Run a workflow that one of its first works holds up, as it has died; return its id."""
    BROKEN.add("b")
    id = enqueue(flow(links=[[*first], ["last"]])).id
    drain(raises=False)
    return id


def fill(number: int, dead: int = 0) -> str:
    """Make a group of works, some of them dead, and a gate over all of them. Return its id."""
    root = WorkFactory(type="graph.root", status="success")
    Work.objects.filter(id=root.id).update(group_id=root.id)
    member = {"group_id": root.id, "parent_id": root.id}
    ended = vars(WorkFactory.build(type="graph.fetch", status="success", **member))
    columns = {name: value for name, value in ended.items() if name not in ("_state", "id", "status")}
    early = dead // 2
    statuses = ["dead"] * early + ["success"] * (number - 2 - dead) + ["dead"] * (dead - early)
    made = [Work(id=new_uuid7(), status=status, **columns) for status in statuses]
    Work.objects.bulk_create(made)
    gate = WorkFactory(type=GATE_TYPE, status="blocked", input='{"queue":[]}', **member)
    tally = {"total": len(made), "succeeded": len(made) - dead, "missed": dead}
    WaiterFactory(work_id=gate.id, on_unmet="wait", **tally)
    Edge.objects.bulk_create(
        Edge(waiter_id=gate.id, watched_id=each.id, position=place, outcome=each.status)
        for place, each in enumerate(made)
    )
    GroupFactory(id=root.id, open=1, total=number, dead=dead)
    return str(root.id)


def folded(id: str) -> Folded:
    """Read and fold a workflow."""
    workflow = read_workflow(id)
    return fold(workflow.members, workflow.links)


def name(node: Any) -> str:
    """Return the last part of a node's type, or "gate"; with its number of works."""
    short = "gate" if node.type == GATE_TYPE else node.type.rpartition(".")[2]
    return f"{short}*{len(node.members)}" if len(node.members) > 1 else short


def edges_of(graph: Folded) -> list[str]:
    """Return the edges of a graph as texts, sorted."""
    names = {node.id: name(node) for node in graph.nodes}
    return sorted(f"{names[source]} > {names[target]}" for source, target in graph.edges)


def nodes_of(graph: Folded) -> dict[str, dict[str, int]]:
    """Return how many works of each status the nodes have, by their names."""
    return {name(node): node.counts for node in graph.nodes}


def statuses(workflow: Workflow) -> list[str]:
    """Return the statuses of the works, sorted."""
    return sorted(member.status for member in workflow.members)


def member(id: str, type: str = "shop.work", status: str = "success", **columns: Any) -> Member:
    """Return a work that was queued at noon."""
    return Member(id=id, type=type, status=status, queued_at=NOON, run_at=NOON, **columns)


def after(seconds: float) -> datetime:
    """Return a moment after noon."""
    return NOON + timedelta(seconds=seconds)


def queued(source: str, *targets: str) -> list[Link]:
    """Return the links from a work to those that it queued."""
    return [Link(source, target, Tie.QUEUED) for target in targets]


def watched(target: str, *sources: str) -> list[Link]:
    """Return the links from works to what waits for them."""
    return [Link(source, target, Tie.WATCHED) for source in sources]
