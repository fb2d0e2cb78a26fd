"""Where the nodes of a graph are drawn: in layers from left to right, with few crossings of edges.

The layout is a function of its arguments alone: the same graph gives the same picture. Its cost is bounded by
the number of nodes and edges, which the caller bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

Edge: TypeAlias = tuple[str, str]
#: A node, or a place in a layer between, through which a long edge passes.
Spot: TypeAlias = Hashable

#: Space between layers, between neighbours in a layer, and around the whole picture.
LAYER_GAP, NODE_GAP, MARGIN = 44.0, 18.0, 16.0
#: Passes over the layers that order them and that place them.
SWEEPS = 6
#: With more places than this, long edges are drawn straight.
MOST_PASSED = 3000


@dataclass(frozen=True, slots=True)
class Size:
    """The width and the height of a node."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Box:
    """Where a node is: its layer, counted from 0, and its rectangle."""

    layer: int
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The height at which edges come and go."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """A picture: its size, the boxes of the nodes, and the points of each edge that is drawn."""

    width: float
    height: float
    boxes: Mapping[str, Box]
    routes: Mapping[Edge, tuple[tuple[float, float], ...]]


def layout(sizes: Mapping[str, Size], edges: Iterable[Edge]) -> Layout:
    """Place the nodes. Edges between unknown nodes and those that close a cycle are left out.

    >>> picture = layout({"a": Size(10, 10), "b": Size(10, 10)}, [("a", "b")])
    >>> [picture.boxes[name].layer for name in "ab"]
    [0, 1]
    """
    if not sizes:
        return Layout(2 * MARGIN, 2 * MARGIN, {}, {})
    kept = without_cycles(list(sizes), edges)
    layer_of = layers(list(sizes), kept)
    paths = {edge: passed(edge, layer_of) for edge in kept}
    if sum(map(len, paths.values())) > MOST_PASSED:
        paths = dict.fromkeys(kept, ())
    ranks = ranked(sizes, layer_of, paths)
    near = neighbours(paths)
    for sweep in range(SWEEPS):
        order(ranks, near, forward=sweep % 2 == 0)
    heights = {spot: sizes[spot].height if isinstance(spot, str) else 0.0 for rank in ranks for spot in rank}
    return pictured(sizes, layer_of, paths, ranks, placed(ranks, near, heights))


# Cycles


def without_cycles(nodes: Sequence[str], edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges between these nodes, each once, without those that lead back on their way.

    >>> without_cycles("abc", [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a"), ("a", "x")])
    [('a', 'b'), ('b', 'c')]
    """
    known = set(nodes)
    unique = dict.fromkeys(edge for edge in edges if known.issuperset(edge) and edge[0] != edge[1])
    back = leading_back(nodes, successors(unique))
    return [edge for edge in unique if edge not in back]


def successors(edges: Iterable[Edge]) -> dict[str, list[str]]:
    """Return the nodes that follow each node."""
    following: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        following[source].append(target)
    return following


def leading_back(nodes: Iterable[str], following: Mapping[str, Sequence[str]]) -> set[Edge]:
    """Return the edges that lead to a node from which the search has come; nodes are searched in order."""
    back: set[Edge] = set()
    is_open: dict[str, bool] = {}
    for start in nodes:
        if start in is_open:
            continue
        is_open[start] = True
        stack = [(start, iter(following.get(start, ())))]
        while stack:
            node, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                is_open[node] = False
                stack.pop()
            elif target not in is_open:
                is_open[target] = True
                stack.append((target, iter(following.get(target, ()))))
            elif is_open[target]:
                back.add((node, target))
    return back


# Layers


def layers(nodes: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Return the layer of each node: the length of the longest path to it; edges have no cycle.

    A node to which no edge leads stands just before the first node that follows it.

    >>> layers("abcd", [("a", "b"), ("b", "c"), ("d", "c")])
    {'a': 0, 'b': 1, 'c': 2, 'd': 1}
    """
    following = successors(edges)
    open_edges: dict[str, int] = defaultdict(int)
    for _, target in edges:
        open_edges[target] += 1
    sources = [node for node in nodes if not open_edges[node]]
    found = dict.fromkeys(nodes, 0)
    ready = sources[:]
    while ready:
        node = ready.pop()
        for target in following.get(node, ()):
            found[target] = max(found[target], found[node] + 1)
            open_edges[target] -= 1
            if not open_edges[target]:
                ready.append(target)
    for node in sources:
        found[node] = min((found[target] for target in following.get(node, ())), default=1) - 1
    return found


def passed(edge: Edge, layer_of: Mapping[str, int]) -> tuple[Spot, ...]:
    """Return the places in the layers between the ends of an edge."""
    return tuple((edge, layer) for layer in range(layer_of[edge[0]] + 1, layer_of[edge[1]]))


def ranked(
    sizes: Mapping[str, Size], layer_of: Mapping[str, int], paths: Mapping[Edge, Sequence[Spot]]
) -> list[list[Spot]]:
    """Return what stands in each layer, nodes first, in the order given."""
    ranks: list[list[Spot]] = [[] for _ in range(max(layer_of.values()) + 1)]
    for node in sizes:
        ranks[layer_of[node]].append(node)
    for (source, _), spots in paths.items():
        for number, spot in enumerate(spots, layer_of[source] + 1):
            ranks[number].append(spot)
    return ranks


# Order within a layer


#: The neighbours of each place: those to the left, those to the right.
Near: TypeAlias = tuple[Mapping[Spot, Sequence[Spot]], Mapping[Spot, Sequence[Spot]]]


def neighbours(paths: Mapping[Edge, Sequence[Spot]]) -> Near:
    """Return the neighbours along the edges."""
    left: dict[Spot, list[Spot]] = defaultdict(list)
    right: dict[Spot, list[Spot]] = defaultdict(list)
    for (source, target), spots in paths.items():
        way: list[Spot] = [source, *spots, target]
        for before, after in pairwise(way):
            right[before].append(after)
            left[after].append(before)
    return left, right


def order(ranks: list[list[Spot]], near: Near, forward: bool) -> None:
    """Order each layer by the mean position of the neighbours in the layers that were ordered before it."""
    beside = near[0 if forward else 1]
    position = {spot: index / len(rank) for rank in ranks for index, spot in enumerate(rank)}
    for rank in ranks if forward else reversed(ranks):
        rank.sort(key=lambda spot: mean([position[other] for other in beside.get(spot, ())], position[spot]))
        position.update({spot: index / len(rank) for index, spot in enumerate(rank)})


def mean(values: Sequence[float], otherwise: float) -> float:
    """Return the mean of some values; of none, another one."""
    return sum(values) / len(values) if values else otherwise


# Heights


def placed(ranks: list[list[Spot]], near: Near, heights: Mapping[Spot, float]) -> dict[Spot, float]:
    """Return the height of the middle of each place, near to its neighbours and without overlaps."""
    middle: dict[Spot, float] = {}
    for rank in ranks:
        middle.update(zip(rank, apart([0.0] * len(rank), rank, heights), strict=True))
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        beside = near[0 if forward else 1]
        for rank in ranks if forward else reversed(ranks):
            wanted = [mean([middle[each] for each in beside.get(spot, ())], middle[spot]) for spot in rank]
            middle.update(zip(rank, apart(wanted, rank, heights), strict=True))
    return middle


def apart(wanted: Sequence[float], rank: Sequence[Spot], heights: Mapping[Spot, float]) -> list[float]:
    """Return the nearest heights to those wanted at which neighbours in a layer do not overlap.

    Those that would overlap form blocks, which stand at the mean of what their members want.
    """
    offsets = [0.0]
    for before, after in pairwise(rank):
        offsets.append(offsets[-1] + (heights[before] + heights[after]) / 2 + NODE_GAP)
    blocks: list[tuple[float, int]] = []  # the sum of what is wanted, and of how many
    for want, offset in zip(wanted, offsets, strict=True):
        total, count = want - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            more, others = blocks.pop()
            total, count = total + more, count + others
        blocks.append((total, count))
    starts = [total / count for total, count in blocks for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


# The picture


def pictured(
    sizes: Mapping[str, Size],
    layer_of: Mapping[str, int],
    paths: Mapping[Edge, Sequence[Spot]],
    ranks: Sequence[Sequence[Spot]],
    middle: Mapping[Spot, float],
) -> Layout:
    """Return the picture, moved to its margin."""
    widths = [max((sizes[spot].width for spot in rank if isinstance(spot, str)), default=0) for rank in ranks]
    lefts = [MARGIN + sum(widths[:number]) + number * LAYER_GAP for number in range(len(ranks))]
    top = min(middle[node] - size.height / 2 for node, size in sizes.items())
    top = min([top, *(middle[spot] for spots in paths.values() for spot in spots)]) - MARGIN
    boxes = {
        node: Box(
            layer_of[node],
            lefts[layer_of[node]],
            round(middle[node] - size.height / 2 - top, 1),
            size.width,
            size.height,
        )
        for node, size in sizes.items()
    }
    routes = {}
    for (source, target), spots in paths.items():
        start, end = boxes[source], boxes[target]
        points = [(start.x + start.width, start.middle)]
        for number, spot in enumerate(spots, layer_of[source] + 1):
            height = round(middle[spot] - top, 1)
            points += [(lefts[number], height), (lefts[number] + widths[number], height)]
        routes[source, target] = (*points, (end.x, end.middle))
    bottoms = [box.y + box.height for box in boxes.values()]
    bottoms += [height for route in routes.values() for _, height in route]
    return Layout(lefts[-1] + widths[-1] + MARGIN, max(bottoms) + MARGIN, boxes, routes)
