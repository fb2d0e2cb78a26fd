"""Which works are drawn as one node, what holds a workflow up, and its critical path."""

from __future__ import annotations

from django_ayework.rules.workflow import FEW_NODES, MOST_NODES, Kind, Link, Tie, critical_path, fold, holding
from tests.graph.kit import after, edges_of, member, nodes_of, queued, watched

FETCHES = [f"f{number}" for number in range(5)]


def test_siblings_are_one_node_with_their_statuses() -> None:
    fetches = [member(id, "shop.fetch") for id in FETCHES]
    members = [member("root"), *fetches, member("x", "shop.fetch", "dead")]
    graph = fold(members, queued("root", *FETCHES, "x"))
    assert nodes_of(graph) == {"work": {"success": 1}, "fetch*6": {"dead": 1, "success": 5}}
    assert edges_of(graph) == ["work > fetch*6"]
    assert graph.nodes[1].id == "f0"
    assert graph.nodes[1].members[0].id == "x", "the dead one comes first"
    assert graph.nodes[1].status == "dead"


def test_siblings_of_other_gates_are_nodes_of_their_own() -> None:
    members = [member(id, "shop.fetch") for id in FETCHES]
    members += [member(gate, "@work/dependency", kind=Kind.GATE) for gate in ("g1", "g2")]
    graph = fold(members, [*watched("g1", "f0", "f1"), *watched("g2", "f2", "f3")])
    assert sorted(len(node.members) for node in graph.nodes) == [1, 1, 1, 2, 2]


def test_what_many_siblings_queued_is_one_node_each() -> None:
    members = [member("root")]
    links = queued("root", *(f"a{number}" for number in range(400)))
    for number in range(400):
        members += [member(f"a{number}", "shop.a"), member(f"b{number}", "shop.b")]
        links += queued(f"a{number}", f"b{number}")
    graph = fold(members, links)
    assert edges_of(graph) == ["a*400 > b*400", "work > a*400"]


def test_too_many_nodes_are_folded_more_coarsely() -> None:
    members = [member("root")]
    links = []
    for number in range(FEW_NODES):
        gate = f"g{number}"
        members += [member(f"a{number}", "shop.a"), member(gate, "@work/dependency", kind=Kind.GATE)]
        links += [*queued("root", f"a{number}"), *watched(gate, f"a{number}")]
    graph = fold(members, links)
    assert edges_of(graph) == [f"a*{FEW_NODES} > gate*{FEW_NODES}", f"work > a*{FEW_NODES}"]


def test_of_far_too_many_nodes_those_that_need_attention_are_drawn() -> None:
    members = [member(f"{number}", f"shop.type{number}") for number in range(MOST_NODES + 20)]
    members.append(member("late", "shop.late", "dead"))
    graph = fold(members, [])
    assert len(graph.nodes) == MOST_NODES
    assert graph.omitted == 21
    assert "late" in {each.id for node in graph.nodes for each in node.members}


def test_a_long_run_of_steps_is_one_node() -> None:
    members = [member(f"{number}", "shop.poll", chain="0", step=number) for number in range(40)]
    members.append(member("end", "shop.end", chain="0", step=40))
    links = [Link(str(number), str(number + 1), Tie.STEP) for number in range(39)]
    graph = fold(members, [*links, Link("39", "end", Tie.STEP)])
    assert edges_of(graph) == ["poll*40 > end"]


def test_a_short_run_of_steps_is_drawn_step_by_step() -> None:
    members = [member(id, "shop.poll", chain="a", step=step) for step, id in enumerate("abc")]
    graph = fold(members, [Link("a", "b", Tie.STEP), Link("b", "c", Tie.STEP)])
    assert edges_of(graph) == ["poll > poll", "poll > poll"]


def test_who_queued_a_gate_is_not_drawn_where_a_path_leads_there() -> None:
    members = [member("root"), member("a", "shop.a"), member("g", "@work/dependency", kind=Kind.GATE)]
    graph = fold(members, [*queued("root", "a", "g"), *watched("g", "a")])
    assert edges_of(graph) == ["a > gate", "work > a"]


def test_gates_that_wait_for_each_other_are_drawn() -> None:
    members = [member(id, "@work/dependency", "blocked", kind=Kind.GATE) for id in "ab"]
    graph = fold(members, [*watched("a", "b"), *watched("b", "a")])
    assert sum(len(node.members) for node in graph.nodes) == 2


def test_links_to_works_that_were_not_read_are_passed_over() -> None:
    assert edges_of(fold([member("a")], [*queued("gone", "a"), *watched("gone", "a")])) == []


# What holds it up


def test_the_dead_are_named_first_then_the_longest_running_then_the_oldest_waiting() -> None:
    found = holding(
        [
            member("waiting", status="pending"),
            member("later", status="scheduled", started_at=None),
            member("young", status="running", started_at=after(9)),
            member("old", status="running", started_at=after(1)),
            member("done"),
            member("gate", "shop.gate", "dead", reason="unsatisfiable", ended_at=after(2)),
            member("dead", "shop.fetch", "dead", reason="exhausted", ended_at=after(3)),
        ],
        dead=5,
        others=1,
    )
    assert [each.id for each in found.members] == ["dead", "gate", "old", "waiting"]
    assert found.totals == (2, 2, 2)


def test_those_that_died_alike_are_named_once() -> None:
    died = [member(str(number), "shop.fetch", "dead", cause="timeout") for number in range(7)]
    other = member("other", "shop.fetch", "dead", cause="refused")
    found = holding([*died, other], dead=5, others=1)
    assert [each.id for each in found.dead] == ["0", "other"]
    assert found.alike == {"0": 6, "other": 0}


def test_blocked_works_are_named_if_nothing_else_goes_on() -> None:
    gate = member("gate", "@work/dependency", "blocked", kind=Kind.GATE)
    assert holding([gate], 5, 2).waiting == (gate,)
    assert holding([gate, member("a", status="running", started_at=after(1))], 5, 2).waiting == ()


def test_works_of_other_groups_and_those_to_come_hold_nothing_up() -> None:
    others = [member("x", status="dead", kind=Kind.OUTSIDE), member("y", status="planned", kind=Kind.PLANNED)]
    assert holding(others, 5, 2).members == ()


# The critical path


def test_the_critical_path_goes_through_what_ended_last() -> None:
    members = [
        member("root", ended_at=after(1)),
        member("quick", ended_at=after(2)),
        member("slow", ended_at=after(9)),
        member("gate", "@work/dependency", kind=Kind.GATE, ended_at=after(9)),
        member("last", ended_at=after(12)),
        member("aside", ended_at=after(11)),
    ]
    links = [*queued("root", "quick", "slow", "gate", "aside"), *watched("gate", "quick", "slow")]
    path = critical_path(members, [*links, *queued("gate", "last")])
    assert [each.id for each in path] == ["root", "slow", "gate", "last"]


def test_there_is_no_critical_path_before_the_end() -> None:
    assert critical_path([member("a", ended_at=after(1)), member("b", status="running")], []) == ()


def test_a_path_does_not_run_in_circles() -> None:
    members = [member("a", ended_at=after(1)), member("b", ended_at=after(2))]
    assert len(critical_path(members, [*queued("a", "b"), *queued("b", "a")])) == 2
