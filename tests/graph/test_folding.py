"""Which works are drawn as one node, what holds a workflow up, its critical path; and the layout."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.graph import Size, layout, without_cycles
from django_ayework.rules.workflow import (
    FEW_NODES,
    MOST_NODES,
    Link,
    NodeKind,
    Tie,
    critical_path,
    fold,
    holding,
)
from tests.graph.kit import after, edges_of, member, nodes_of, queued, watched

FETCHES = [f"f{number}" for number in range(5)]


def gate(id, status="success", **columns):
    return member(id, "@work/dependency", status, kind=NodeKind.GATE, **columns)


def test_siblings_are_one_node_with_their_statuses():
    fetches = [*(member(id, "shop.fetch") for id in FETCHES), member("x", "shop.fetch", "dead")]
    graph = fold([member("root"), *fetches], queued("root", *FETCHES, "x"))
    assert nodes_of(graph) == {"work": {"success": 1}, "fetch*6": {"dead": 1, "success": 5}}
    assert edges_of(graph) == ["work > fetch*6"]
    assert (graph.nodes[1].id, graph.nodes[1].status) == ("f0", "dead")
    assert graph.nodes[1].members[0].id == "x", "the dead one comes first"


def test_siblings_of_other_gates_are_nodes_of_their_own():
    members = [*(member(id, "shop.fetch") for id in FETCHES), gate("g1"), gate("g2")]
    graph = fold(members, [*watched("g1", "f0", "f1"), *watched("g2", "f2", "f3")])
    assert sorted(len(node.members) for node in graph.nodes) == [1, 1, 1, 2, 2]


def test_what_many_siblings_queued_is_one_node_each():
    members, links = [member("root")], []
    for number in range(400):
        members += [member(f"a{number}", "shop.a"), member(f"b{number}", "shop.b")]
        links += [*queued("root", f"a{number}"), *queued(f"a{number}", f"b{number}")]
    assert edges_of(fold(members, links)) == ["a*400 > b*400", "work > a*400"]


def test_too_many_nodes_are_folded_more_coarsely():
    members, links = [member("root")], []
    for number in range(FEW_NODES):
        members += [member(f"a{number}", "shop.a"), gate(f"g{number}")]
        links += [*queued("root", f"a{number}"), *watched(f"g{number}", f"a{number}")]
    assert edges_of(fold(members, links)) == [f"a*{FEW_NODES} > gate*{FEW_NODES}", f"work > a*{FEW_NODES}"]


def test_of_far_too_many_nodes_those_that_need_attention_are_drawn():
    members = [member(f"{number}", f"shop.type{number}") for number in range(MOST_NODES + 20)]
    graph = fold([*members, member("late", "shop.late", "dead")], [])
    assert (len(graph.nodes), graph.omitted) == (MOST_NODES, 21)
    assert "late" in {each.id for node in graph.nodes for each in node.members}


def test_a_long_run_of_steps_is_one_node_and_a_short_one_is_drawn_step_by_step():
    members = [member(f"{number}", "shop.poll", chain="0", step=number) for number in range(40)]
    end = member("end", "shop.end", chain="0", step=40)
    links = [Link(one.id, next.id, Tie.STEP) for one, next in zip(members, [*members[1:], end], strict=True)]
    assert edges_of(fold([*members, end], links)) == ["poll*40 > end"]
    assert edges_of(fold(members[:3], links[:2])) == ["poll > poll", "poll > poll"]


def test_who_queued_a_gate_is_not_drawn_where_a_path_leads_there():
    members = [member("root"), member("a", "shop.a"), gate("g")]
    graph = fold(members, [*queued("root", "a", "g"), *watched("g", "a")])
    assert edges_of(graph) == ["a > gate", "work > a"]


def test_gates_that_wait_for_each_other_are_drawn_and_links_to_works_that_were_not_read_are_not():
    graph = fold([gate(id, "blocked") for id in "ab"], [*watched("a", "b"), *watched("b", "a")])
    assert sum(len(node.members) for node in graph.nodes) == 2
    assert edges_of(fold([member("a")], [*queued("gone", "a"), *watched("gone", "a")])) == []


def test_the_dead_are_named_first_then_the_longest_running_then_the_oldest_waiting():
    members = [
        member("waiting", status="pending"),
        member("later", status="scheduled", started_at=None),
        member("young", status="running", started_at=after(9)),
        member("old", status="running", started_at=after(1)),
        member("done"),
        member("gate", "shop.gate", "dead", reason="unsatisfiable", ended_at=after(2)),
        member("dead", "shop.fetch", "dead", reason="exhausted", ended_at=after(3)),
        # Works of other groups and those to come hold nothing up.
        member("x", status="dead", kind=NodeKind.OUTSIDE),
        member("y", status="planned", kind=NodeKind.PLANNED),
    ]
    found = holding(members, dead=5, others=1)
    assert [each.id for each in found.members] == ["dead", "gate", "old", "waiting"]
    assert found.totals == (2, 2, 2)


def test_those_that_died_alike_are_named_once():
    died = [member(str(number), "shop.fetch", "dead", cause="timeout") for number in range(7)]
    found = holding([*died, member("other", "shop.fetch", "dead", cause="refused")], dead=5, others=1)
    assert [each.id for each in found.dead] == ["0", "other"]
    assert found.alike == {"0": 6, "other": 0}


def test_blocked_works_are_named_if_nothing_else_goes_on():
    blocked = gate("gate", "blocked")
    assert holding([blocked], 5, 2).waiting == (blocked,)
    assert holding([blocked, member("a", status="running", started_at=after(1))], 5, 2).waiting == ()


def test_the_critical_path_goes_through_what_ended_last():
    moments = {"root": 1, "quick": 2, "slow": 9, "last": 12, "aside": 11}
    members = [member(id, ended_at=after(seconds)) for id, seconds in moments.items()]
    links = [*queued("root", "quick", "slow", "gate", "aside"), *watched("gate", "quick", "slow")]
    path = critical_path([*members, gate("gate", ended_at=after(9))], [*links, *queued("gate", "last")])
    assert [each.id for each in path] == ["root", "slow", "gate", "last"]


def test_there_is_no_critical_path_before_the_end_and_none_runs_in_circles():
    assert critical_path([member("a", ended_at=after(1)), member("b", status="running")], []) == ()
    members = [member("a", ended_at=after(1)), member("b", ended_at=after(2))]
    assert len(critical_path(members, [*queued("a", "b"), *queued("b", "a")])) == 2


NAMES = [f"n{number}" for number in range(14)]
SIZES = st.dictionaries(
    st.sampled_from(NAMES), st.builds(Size, st.integers(10, 200), st.integers(10, 300)), max_size=14
)
EDGES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=40)


def overlap(one, other):
    """Tell whether two rectangles have more than an edge in common."""
    apart_in_x = one.x + one.width <= other.x + 0.2 or other.x + other.width <= one.x + 0.2
    apart_in_y = one.y + one.height <= other.y + 0.2 or other.y + other.height <= one.y + 0.2
    return not (apart_in_x or apart_in_y)


@given(SIZES, EDGES)
def test_nothing_overlaps_edges_lead_on_all_is_within_the_picture_and_it_is_the_same_each_time(sizes, edges):
    picture = layout(sizes, edges)
    places = picture.boxes.values()
    assert [(one, other) for one, other in combinations(places, 2) if overlap(one, other)] == []
    for source, target in picture.routes:
        assert picture.boxes[source].layer < picture.boxes[target].layer
    for place in places:
        assert place.x >= 0 and place.x + place.width <= picture.width
        assert place.y >= 0 and place.y + place.height <= picture.height
    for route in picture.routes.values():
        assert all(0 <= x <= picture.width and 0 <= y <= picture.height for x, y in route)
    assert layout(dict(sizes), list(edges)) == picture


@given(SIZES, EDGES)
def test_only_edges_that_close_a_cycle_are_left_out(sizes, edges):
    acyclic = [(min(edge), max(edge)) for edge in edges if edge[0] != edge[1] and sizes.keys() >= set(edge)]
    assert layout(sizes, acyclic).routes.keys() == set(acyclic)
    kept = without_cycles(list(sizes), edges)
    assert without_cycles(list(sizes), kept) == kept


def test_an_edge_over_several_layers_passes_beside_the_nodes_between():
    picture = layout({name: Size(50, 20) for name in "abc"}, [("a", "b"), ("b", "c"), ("a", "c")])
    between = picture.boxes["b"]
    [(_, height), _] = picture.routes["a", "c"][1:3]
    assert height < between.y or height > between.y + between.height


def test_a_node_that_nothing_precedes_stands_beside_what_follows_it():
    picture = layout({name: Size(9, 9) for name in "abcd"}, [("a", "b"), ("b", "c"), ("d", "c")])
    assert picture.boxes["d"].layer == picture.boxes["b"].layer
    assert layout({}, [("a", "b")]).boxes == {}


def test_a_ladder_has_no_crossings():
    names = ["root", *(f"{kind}{number}" for kind in "ab" for number in (3, 1, 2))]
    edges = [("root", f"a{number}") for number in (1, 2, 3)]
    edges += [(f"a{number}", f"b{number}") for number in (1, 2, 3)]
    picture = layout({name: Size(20, 20) for name in names}, edges)
    heights = [sorted((picture.boxes[f"{kind}{number}"].y, number) for number in (1, 2, 3)) for kind in "ab"]
    assert [number for _, number in heights[0]] == [number for _, number in heights[1]]


def test_a_long_path_and_a_dense_graph_are_laid_out():
    path = [f"{number:03}" for number in range(150)]
    dense = [(one, other) for one, other in combinations(path, 2)]
    picture = layout({name: Size(10, 10) for name in path}, dense)
    assert [picture.boxes[name].layer for name in path] == list(range(150))
    assert len(picture.routes) == len(dense)
