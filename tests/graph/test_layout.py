"""The layout of a graph: layers, no overlaps, the same picture each time."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.graph import Size, layout, without_cycles

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
