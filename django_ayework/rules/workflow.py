"""A workflow as a graph: its works, what links them, which of them are drawn as one, what holds it up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from django_ayework.rules.graph import Edge, layers, successors, without_cycles
from django_ayework.rules.states import Reason, Status, is_terminal

#: Statuses of works without a row: a gate may queue the work later, a gate will never queue it, unknown.
PLANNED, NEVER, UNKNOWN = "planned", "never", "unknown"
#: Statuses in the order in which people look for them.
ORDER = (
    *(Status.DEAD, Status.RUNNING, Status.PENDING, Status.SCHEDULED, Status.BLOCKED, Status.CANCELLED),
    *(UNKNOWN, NEVER, PLANNED, Status.SUCCESS),
)
RANK = {str(status): number for number, status in enumerate(ORDER)}
#: Nodes of a graph: beyond the first number works are folded more coarsely, beyond the second they are left
#: out.
FEW_NODES, MOST_NODES = 60, 150
#: Steps of one type in a row from which on a chain is drawn as one node.
LONG_RUN = 4
#: Works of a critical path.
LONGEST_PATH = 200
#: Stands for a moment that is not known.
NEVER_YET = datetime.max.replace(tzinfo=UTC)


class NodeKind(StrEnum):
    """The kind of a node."""

    WORK = "work"
    GATE = "gate"
    PLANNED = "planned"  # a gate is to queue it
    OUTSIDE = "outside"  # a member waits for it, and it belongs to another group


class Tie(StrEnum):
    """Why one work comes before another."""

    QUEUED = "queued"  # it queued the other
    STEP = "step"  # it continues with the other
    WATCHED = "watched"  # the other waits for it


@dataclass(frozen=True, slots=True)
class Member:
    """One work of a workflow: columns in the order in which the store reads them, and the kind."""

    id: str
    type: str
    status: str
    reason: str = ""
    cause: str = ""
    parent: str | None = None
    chain: str | None = None
    step: int = 0
    queued_at: datetime | None = None
    run_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    kind: NodeKind = NodeKind.WORK


@dataclass(frozen=True, slots=True)
class Link:
    """An ordered pair of works, by their ids."""

    source: str
    target: str
    tie: Tie

    @property
    def edge(self) -> Edge:
        """The two ids."""
        return self.source, self.target


@dataclass(frozen=True, slots=True)
class Node:
    """Works that are drawn as one, those that need attention first; its id is that of the oldest work."""

    id: str
    type: str
    kind: NodeKind
    members: tuple[Member, ...]

    @property
    def status(self) -> str:
        """The status that needs most attention."""
        return self.members[0].status

    @property
    def counts(self) -> dict[str, int]:
        """How many members have each status, in the order of attention."""
        return dict(
            sorted(
                Counter(member.status for member in self.members).items(), key=lambda item: rank_of(item[0])
            )
        )


@dataclass(frozen=True, slots=True)
class Folded:
    """The nodes of a graph and its edges; ``omitted`` is how many works have no node."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    omitted: int = 0


def rank_of(status: str) -> int:
    """Return the place of a status in the order of attention."""
    return RANK.get(status, len(RANK))


def by_attention(member: Member) -> tuple[int, bool]:
    """Return what puts the dead first, and among them last those that died because of others."""
    return rank_of(member.status), member.reason == Reason.UNSATISFIABLE


# Folding


@dataclass(frozen=True, slots=True)
class Graph:
    """Works in an order in which each follows those before it, with the neighbours of each."""

    members: Mapping[str, Member]
    ordered: Sequence[str]
    before: Mapping[str, Sequence[str]]
    watchers: Mapping[str, frozenset[str]]
    layer: Mapping[str, int]


def fold(members: Sequence[Member], links: Sequence[Link]) -> Folded:
    """Return the graph with siblings as one node.

    Siblings have one type, follow the same nodes, and are waited for by the same works. Where that leaves too
    many nodes, it does not matter what waits for them; or works of one type and one layer are folded.
    """
    known = {member.id: member for member in members}
    heads = runs(known, links)
    pairs = [Link(heads[link.source], heads[link.target], link.tie) for link in links if ends_in(link, known)]
    graph = arranged(known, heads, pairs)
    classes: dict[str, int] = {}
    for key in KEYS:
        classes = classified(graph, key)
        if len(set(classes.values())) <= FEW_NODES:
            break
    return drawn(known, {id: classes[head] for id, head in heads.items()}, pairs)


def ends_in(link: Link, known: Mapping[str, Member]) -> bool:
    """Tell whether both ends of a link are known."""
    return link.source in known and link.target in known


def arranged(known: Mapping[str, Member], heads: Mapping[str, str], links: Sequence[Link]) -> Graph:
    """Return the works that stand for themselves or for their runs, in order."""
    ids = [id for id in known if heads[id] == id]
    edges = without_cycles(ids, (link.edge for link in links))
    before, watchers = defaultdict(list), defaultdict(set)
    for source, target in edges:
        before[target].append(source)
    for link in links:
        if link.tie is Tie.WATCHED:
            watchers[link.source].add(link.target)
    layer = layers(ids, edges)
    ordered = sorted(ids, key=layer.__getitem__)
    return Graph(known, ordered, before, {id: frozenset(those) for id, those in watchers.items()}, layer)


def runs(known: Mapping[str, Member], links: Sequence[Link]) -> dict[str, str]:
    """Return the first step of the run that each work belongs to; most works are runs of one.

    A run is at least ``LONG_RUN`` steps of one type, one after the other, to which nothing else is linked.
    """
    after: dict[str, set[str]] = defaultdict(set)
    before: dict[str, set[str]] = defaultdict(set)
    for link in links:
        after[link.source].add(link.target)
        before[link.target].add(link.source)
    heads = {id: id for id in known}
    steps = [link for link in links if link.tie is Tie.STEP and ends_in(link, known)]
    for link in sorted(steps, key=lambda link: known[link.target].step):
        source, target = known[link.source], known[link.target]
        alone = len(after[link.source]) == 1 == len(before[link.target])
        if source.type == target.type and alone:
            heads[target.id] = heads[source.id]
    lengths = Counter(heads.values())
    return {id: head if lengths[head] >= LONG_RUN else id for id, head in heads.items()}


Key = Callable[[Graph, str, frozenset[int]], Hashable]
#: What works of one type have in common that are folded, from fine to coarse: they follow the same nodes and
#: the same works wait for them; they follow the same nodes; they are in one layer.
KEYS: tuple[Key, ...] = (
    lambda graph, id, before: (before, graph.watchers.get(id)),
    lambda graph, id, before: before,
    lambda graph, id, before: graph.layer[id],
)


def classified(graph: Graph, key: Key) -> dict[str, int]:
    """Return the number of the node that each work belongs to."""
    numbers: dict[Hashable, int] = {}
    found: dict[str, int] = {}
    for id in graph.ordered:
        member = graph.members[id]
        before = frozenset(found[other] for other in graph.before.get(id, ()))
        of_class = (member.kind, member.type, key(graph, id, before))
        found[id] = numbers.setdefault(of_class, len(numbers))
    return found


def drawn(known: Mapping[str, Member], classes: Mapping[str, int], links: Sequence[Link]) -> Folded:
    """Return the nodes and what links them; beyond ``MOST_NODES`` the calmest are left out."""
    belonging: dict[int, list[Member]] = defaultdict(list)
    for id, number in classes.items():
        belonging[number].append(known[id])
    nodes = {number: node_for(members) for number, members in belonging.items()}
    chosen = nodes
    if len(nodes) > MOST_NODES:
        calm = sorted(nodes, key=lambda number: rank_of(nodes[number].status))
        chosen = {number: nodes[number] for number in sorted(calm[:MOST_NODES])}
    edges: dict[Edge, set[Tie]] = defaultdict(set)
    for link in links:
        source, target = classes[link.source], classes[link.target]
        if source != target and source in chosen and target in chosen:
            edges[nodes[source].id, nodes[target].id].add(link.tie)
    kept = without_detours([node.id for node in chosen.values()], edges)
    omitted = len(known) - sum(len(node.members) for node in chosen.values())
    return Folded(tuple(chosen.values()), tuple(kept), omitted)


def node_for(members: Sequence[Member]) -> Node:
    """Return the node of these works, which are in the order of queueing."""
    first = members[0]
    return Node(first.id, first.type, first.kind, tuple(sorted(members, key=by_attention)))


def without_detours(nodes: Sequence[str], edges: Mapping[Edge, set[Tie]]) -> list[Edge]:
    """Return the edges, but for those that only say who queued a node to which another path leads."""
    ways = without_cycles(nodes, edges)
    following = successors(ways)
    reached: dict[str, set[str]] = {}
    order = layers(nodes, ways)
    for node in sorted(nodes, key=order.__getitem__, reverse=True):
        beyond = [reached[after] | {after} for after in following.get(node, ())]
        reached[node] = set().union(*beyond)
    return [
        (source, target)
        for (source, target), ties in edges.items()
        if ties != {Tie.QUEUED} or not any(target in reached[after] for after in following.get(source, ()))
    ]


# Works that hold a workflow up


@dataclass(frozen=True, slots=True)
class Holding:
    """The works that hold a workflow up, by how; with how many there are in all.

    Of dead works one is named for each way to die; ``alike`` is how many others died as it did, by its id.
    """

    dead: tuple[Member, ...] = ()
    running: tuple[Member, ...] = ()
    waiting: tuple[Member, ...] = ()
    totals: tuple[int, int, int] = (0, 0, 0)
    alike: Mapping[str, int] = field(default_factory=dict)

    @property
    def members(self) -> tuple[Member, ...]:
        """The works that are named, in order."""
        return (*self.dead, *self.running, *self.waiting)


def holding(members: Iterable[Member], dead: int, others: int) -> Holding:
    """Return up to so many kinds of dead works, and works that run, and that wait, the longest.

    Dead works whose own attempts failed come before those that died because of them. Blocked works are named
    only if nothing else waits or runs, as they wait for others.
    """
    members = [member for member in members if member.kind in (NodeKind.WORK, NodeKind.GATE)]
    died = [each for each in members if each.status == Status.DEAD]
    died.sort(key=lambda each: (each.reason == Reason.UNSATISFIABLE, each.ended_at or NEVER_YET))
    running = [each for each in members if each.status == Status.RUNNING]
    running.sort(key=lambda each: each.started_at or NEVER_YET)
    waiting = [each for each in members if each.status in (Status.PENDING, Status.SCHEDULED)]
    waiting.sort(key=lambda each: each.run_at or NEVER_YET)
    if not (died or running or waiting):
        waiting = [member for member in members if member.status == Status.BLOCKED]
    ways: dict[tuple[str, str, str], list[Member]] = {}
    for member in died:
        # A work that died because of others has no cause of its own.
        cause = "" if member.reason == Reason.UNSATISFIABLE else member.cause
        ways.setdefault((member.type, member.reason, cause), []).append(member)
    named = list(ways.values())[:dead]
    return Holding(
        tuple(those[0] for those in named),
        tuple(running[:others]),
        tuple(waiting[:others]),
        (len(died), len(running), len(waiting)),
        {those[0].id: len(those) - 1 for those in named},
    )


# The critical path


def critical_path(members: Iterable[Member], links: Sequence[Link]) -> tuple[Member, ...]:
    """Return the works whose ends determined when the workflow ended, in order; none while it goes on.

    The last is the one that ended last. Before each comes the one that ended last of those it follows.
    """
    known = {member.id: member for member in members if member.kind in (NodeKind.WORK, NodeKind.GATE)}
    ended = [member for member in known.values() if member.ended_at is not None]
    if not ended or not all(is_terminal(member.status) for member in known.values()):
        return ()
    before: dict[str, list[Member]] = defaultdict(list)
    for link in links:
        if ends_in(link, known):
            before[link.target].append(known[link.source])
    path = [max(ended, key=by_end)]
    seen = {path[0].id}
    while len(path) < LONGEST_PATH:
        earlier = [each for each in before[path[-1].id] if each.ended_at and each.id not in seen]
        if not earlier:
            break
        path.append(max(earlier, key=by_end))
        seen.add(path[-1].id)
    return tuple(reversed(path))


def by_end(member: Member) -> tuple[datetime, int]:
    """Return what puts those last that ended last; of one moment, the one that was queued last."""
    queued = member.queued_at
    return member.ended_at or NEVER_YET, 0 if queued is None else int(queued.timestamp() * 1_000_000)
