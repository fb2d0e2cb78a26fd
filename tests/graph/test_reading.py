"""A workflow is read with its gates, chains, blockers, and what gates are yet to queue."""

import pytest

from django_ayework import Context, Count, dependency, enqueue, enqueue_many, retry, work
from django_ayework.errors import WorkNotFound
from django_ayework.flow.graph import hold_up, is_over, read_workflow, standing_sentence
from django_ayework.models import Work
from django_ayework.rules.workflow import NodeKind, critical_path
from django_ayework.testing import drain
from tests.app.works import add
from tests.gates.works import BROKEN, flow, step
from tests.graph.kit import chained, dead_workflow, edges_of, fill, folded, name, nodes_of, statuses
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db


@work(name="graph.diamond")
def diamond(ctx: Context):
    left, right, join = step(label="left"), add(a=1, b=2), step(label="join")
    return ctx.queue([left, right, dependency(on=[left, right], queue=[join])])


@work(name="graph.nested")
def nested(ctx: Context):
    first, last = step(label="first"), add(a=1, b=1)
    inner = dependency(on=[first], queue=[last], condition=Count(1))
    return ctx.queue([first]).next([inner, add(a=2, b=2)])


@work(name="graph.crawl", then="graph.fetch")
def crawl(ctx: Context) -> None:
    ctx.output(["a", "b", "c"])


@work(name="graph.fetch")
def fetch(ctx: Context):
    return ctx.unit


@work(name="graph.blocking")
def blocking(ctx: Context):
    chain = chained(left=2)
    return ctx.queue([chain, ctx.queue([step(label="blocked")], blockers=[chain])])


def run(request, limit=None):
    """Queue a work, run what is due, return the id."""
    id = enqueue(request).id
    drain(limit, raises=False)
    return id


@pytest.mark.parametrize(
    ("request_", "edges"),
    [
        (diamond(), ["diamond > add", "diamond > step", "add > gate", "step > gate", "gate > step"]),
        (
            flow(links=[["a", "b", "c"], ["d"], ["e", "f"]]),
            ["flow > step*3", "step*3 > gate", "gate > step", "step > gate", "gate > step*2"],
        ),
        (chained(left=2), ["chained > chained", "chained > chained"]),
        (crawl(), ["crawl > fetch*3"]),
    ],
    ids=["diamond", "one after the other", "chain", "units that an output names"],
)
def test_what_leads_to_what(request_, edges):
    assert edges_of(folded(run(request_))) == sorted(edges)


def test_the_works_to_come_are_part_of_the_graph():
    id = run(flow(links=[["a", "b"], ["c"], ["d"]]), 1)
    workflow = read_workflow(id)
    assert statuses(workflow) == ["blocked", "blocked", "pending", "pending", "planned", "planned", "success"]
    to_come = [member for member in workflow.members if member.kind is NodeKind.PLANNED]
    assert {member.type for member in to_come} == {"gates.step"}
    edges = ["flow > step*2", "gate > step", "gate > step", "step > gate", "step*2 > gate"]
    assert edges_of(folded(id)) == edges
    drain()
    assert {member.id for member in to_come} <= {member.id for member in read_workflow(id).own}


def test_gates_that_a_gate_is_to_queue_are_part_of_the_graph():
    members = read_workflow(run(nested(), 1)).members
    planned = [member for member in members if member.status == "planned"]
    assert sorted(member.type for member in planned) == ["@work/dependency", "shop.add", "shop.add"]
    assert {member.kind for member in planned} == {NodeKind.PLANNED}


def test_what_a_dead_gate_would_have_queued_never_comes():
    BROKEN.add("a")
    workflow = read_workflow(run(flow(links=[["a"], ["b"]])))
    assert statuses(workflow) == ["dead", "dead", "never", "success"]


def test_how_far_a_gate_is():
    [standing] = read_workflow(run(flow(links=[["a", "b", "c"], ["d"]]), 3)).standings.values()
    assert (standing.reached, standing.needed, standing.total, standing.counts_success) == (2, 3, 3, True)


def test_a_blocked_work_follows_the_last_step_of_the_chain():
    workflow = read_workflow(run(blocking(), 2))
    chain = [each for each in workflow.members if each.type == "graph.chained"]
    [blocked] = [each for each in workflow.members if each.type == "gates.step"]
    last = max(chain, key=lambda each: each.step)
    assert (last.id, blocked.id) in [link.edge for link in workflow.links]
    assert workflow.standings[blocked.id].needed == 1


def test_a_chain_of_another_group_that_blocks_a_work_has_the_status_of_its_last_step():
    chain = enqueue(chained(left=2))
    waiting = enqueue(step(label="after"), blockers=[chain])
    drain(1)
    [outside] = [each for each in read_workflow(waiting.id).members if each.kind is NodeKind.OUTSIDE]
    assert (outside.id, outside.status) == (chain.id, "pending")


def test_watched_works_of_other_groups_are_drawn_and_unknown_ones_too():
    other = enqueue(add(a=1, b=2))
    graph = folded(enqueue(dependency(on=[other, "nobody"], queue=[step(label="x")])).id)
    outside = {node.type: node.status for node in graph.nodes if node.kind is NodeKind.OUTSIDE}
    assert outside == {"shop.add": "pending", "": "unknown"}
    assert sorted(edge.partition(" > ")[2] for edge in edges_of(graph)) == ["gate", "gate", "step"]
    for own, other in ("ab", "ba"):
        enqueue(dependency(on=[f"gate-{other}"], queue=[step(label=own)]), id=f"gate-{own}")
    assert [each.id for each in hold_up(read_workflow("gate-a")).holding.waiting] == ["gate-a"]


def test_a_work_that_is_alone_is_a_workflow_and_the_id_of_any_member_reads_its_group():
    workflow = read_workflow(run(add(a=1, b=2)))
    assert (len(workflow.members), is_over(workflow)) == (1, True)
    assert standing_sentence(workflow) == "The work has succeeded."
    works = enqueue_many([add(a=1, b=2), add(a=3, b=4)], together=True)
    assert read_workflow(works[1].id).id == works[0].id
    with pytest.raises(WorkNotFound, match="no group and no work has the id 'nobody'"):
        read_workflow("nobody")


def test_what_holds_a_workflow_up_is_explained_and_once_retried_it_goes_on():
    id = dead_workflow()
    held = hold_up(read_workflow(id))
    first, gate = held.holding.dead
    assert "gave up: b is broken" in held.reasons[first.id].reasons[0].text
    assert gate.reason == "unsatisfiable"
    BROKEN.clear()
    retry(Work.objects.get(status="dead", type="gates.step").id)
    assert standing_sentence(read_workflow(id)) == "2 of 4 works have ended."
    drain()
    workflow = read_workflow(id)
    assert standing_sentence(workflow) == "All 5 works have succeeded."
    assert hold_up(workflow).holding.members == ()
    assert [each.type for each in critical_path(workflow.members, workflow.links)][-1] == "gates.step"


@on_sqlite
def test_releases_that_cannot_be_read_are_passed_over():
    gate = enqueue(dependency(on=["nobody"], queue=[step(label="x")]))
    before = Work.objects.get(id=gate.id).input
    for stored in (
        "no json",
        '{"queue": 3}',
        '{"queue": [7, {"id": 7}, {"id": "", "type": []}]}',
        '{"queue": [{"id": "x", "type": "t", "gate": {"watched": 9, "releases": "x"}}]}',
        "[" * 5000,
    ):
        Work.objects.filter(id=gate.id).update(input=stored)
        assert NodeKind.GATE in [member.kind for member in read_workflow(gate.id).members], stored
    Work.objects.filter(id=gate.id).update(input=before)


def test_a_thousand_works_are_few_statements_and_few_nodes(django_assert_max_num_queries):
    id = fill(1200, dead=12)
    with django_assert_max_num_queries(9):
        graph = folded(id)
    assert nodes_of(graph)["fetch*1198"] == {"dead": 12, "success": 1186}
    assert edges_of(graph) == ["fetch*1198 > gate", "root > fetch*1198"]


def test_of_a_larger_group_the_works_that_need_attention_are_read(monkeypatch):
    monkeypatch.setattr("django_ayework.flow.graph.MOST_MEMBERS", 20)
    id = fill(100, dead=12)
    workflow = read_workflow(id)
    assert workflow.unread == 80
    assert {name(node) for node in folded(id).nodes} >= {"root", "gate"}
    assert statuses(workflow).count("dead") == 12
    with monkeypatch.context() as fewer:
        fewer.setattr("django_ayework.flow.graph.MOST_MEMBERS", 10)
        assert {name(node) for node in folded(id).nodes} >= {"root", "gate"}
    monkeypatch.setattr("django_ayework.store.workflows.SORTED", 50)
    workflow = read_workflow(id)
    assert (statuses(workflow).count("dead"), workflow.unread, len([*workflow.own])) == (12, 80, 20)
