"""The picture of a workflow: its graph with places, texts and shapes, ready for a template.

Texts are those that people read, in the current language. They are not escaped: the template does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from math import ceil
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow.graph import Standing, Workflow
from django_ayework.models.work import REASON_LABELS, STATUS_LABELS
from django_ayework.rules.graph import Box, Layout, Size, layout
from django_ayework.rules.states import Status
from django_ayework.rules.workflow import NEVER, PLANNED, UNKNOWN, Folded, Member, Node, NodeKind

#: Sizes in pixels: the narrowest and the widest node, a gate or one for several works, and their height.
NARROW, WIDE, MANY, HEIGHT = 150, 230, 200, 56
#: The square of a member of an unfolded node, and how many stand in a row.
CELL, CELLS = 22, 8
#: Space inside a node.
INSET = 12
#: The width of a character in the first line, whose texts begin behind the shape, and in the second.
FIRST_CHARACTER, SECOND_CHARACTER, BEHIND_SHAPE = 8.3, 6.2, 36
#: Members of an unfolded node on one page.
A_PAGE = 200
#: Statuses that the second line of a folded node names.
NAMED = 3

#: The labels of the statuses of a graph.
LABELS: Mapping[str, Any] = {
    **STATUS_LABELS,
    PLANNED: gettext_lazy("to be queued"),
    NEVER: gettext_lazy("never queued"),
    UNKNOWN: gettext_lazy("not known"),
}
#: The shape of each status, in a square of 16.
SHAPES = {
    "success": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM6.8 11.4 3.7 8.3l1.3-1.3 1.8 1.8 4.1-4.1 1.3 1.3z",
    "dead": "M5 1h6l4 4v6l-4 4H5l-4-4V5zM8 6.7 6 4.7 4.7 6l2 2-2 2L6 11.3l2-2 2 2 1.3-1.3-2-2 2-2L10 4.7z",
    "running": "M3 1.5 14.5 8 3 14.5z",
    "pending": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 2a5 5 0 1 1 0 10A5 5 0 0 1 8 3z",
    "scheduled": (
        "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zm0 1.8a5.2 5.2 0 1 1 0 10.4A5.2 5.2 0 0 1 8 2.8z"
        "M7.1 4.2v4.3l3.2 2 .9-1.5-2.3-1.4V4.2z"
    ),
    "blocked": "M2 1h12v14H2zM5 4v8h2V4zm4 0v8h2V4z",
    "cancelled": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1zM4 7h8v2H4z",
    "planned": "M1 7h3v2H1zm5.5 0h3v2h-3zM12 7h3v2h-3z",
    "never": "M2.8 1.4 8 6.6l5.2-5.2 1.4 1.4L9.4 8l5.2 5.2-1.4 1.4L8 9.4l-5.2 5.2-1.4-1.4L6.6 8 1.4 2.8z",
    "unknown": "M8 1l7 7-7 7-7-7zm0 2.8L3.8 8 8 12.2 12.2 8z",
}


def no_address(*arguments: Any) -> None:
    """Return no address."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Makes the addresses of links: of a work; of the page with a node unfolded, from a page of it on."""

    work: Callable[[str], str | None] = no_address
    unfolded: Callable[[str, int], str | None] = no_address
    folded: str | None = None


@dataclass(frozen=True, slots=True)
class Unfolding:
    """The node that is unfolded, by the id of any of its members, and the page of its members, from 1 on."""

    member: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One member of an unfolded node; its box is that within the node."""

    id: str
    anchor: str
    x: float
    y: float
    status: str
    shape: str
    title: str
    address: str | None


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a node's members that have one status, as a piece of a bar."""

    x: float
    width: float
    status: str


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node with all that is drawn of it. ``before`` and ``after`` are the titles of its neighbours."""

    id: str
    anchor: str
    box: Box
    kind: str
    status: str
    shape: str
    first: str
    second: str
    heading: str
    standing: str
    title: str
    outline: str
    address: str | None
    many: bool
    critical: bool
    bar: float
    foot: float
    middle: float
    right: float
    parts: tuple[Part, ...] = ()
    cells: tuple[Cell, ...] = ()
    earlier: str | None = None
    later: str | None = None
    shown: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """A line and the head of its arrow, as paths; between two nodes, by their ids."""

    source: str
    target: str
    line: str
    head: str
    critical: bool


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture; ``note`` names the parts that were left out."""

    width: float
    height: float
    title: str
    nodes: tuple[DrawnNode, ...] = ()
    edges: tuple[DrawnEdge, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Artist:
    """Draws one graph."""

    workflow: Workflow
    folded: Folded
    addresses: Addresses
    unfolding: Unfolding
    path: frozenset[str] = field(default_factory=frozenset)

    def draw(self) -> Drawing:
        """Return the picture."""
        picture = layout({node.id: self.size(node) for node in self.folded.nodes}, self.folded.edges)
        titles = {node.id: self.heading(node) for node in self.folded.nodes}
        boxes = picture.boxes  # nodes are read by layer, from top to bottom
        ordered = sorted(self.folded.nodes, key=lambda node: (boxes[node.id].layer, boxes[node.id].y))
        return Drawing(
            width=ceil(picture.width),
            height=ceil(picture.height),
            title=_("Graph of the workflow %(id)s") % {"id": self.workflow.id},
            nodes=tuple(self.node(node, picture, titles) for node in ordered),
            edges=tuple(self.edges(picture)),
            note=self.note(),
        )

    def note(self) -> str:
        """Return what the picture leaves out."""
        left = self.workflow.unread + self.folded.omitted
        if not left:
            return ""
        text = _("%(count)s works are not drawn: those shown hold the workflow together, or need attention.")
        return text % {"count": number_text(left)}

    def is_unfolded(self, node: Node) -> bool:
        """Tell whether a node's members are drawn."""
        return len(node.members) > 1 and any(each.id == self.unfolding.member for each in node.members)

    def is_critical(self, node: Node) -> bool:
        """Tell whether a node has a work of the critical path."""
        return any(member.id in self.path for member in node.members)

    def members_shown(self, node: Node) -> tuple[Member, ...]:
        """Return the members of an unfolded node that are drawn."""
        start = (self.unfolding.page - 1) * A_PAGE
        return node.members[start : start + A_PAGE] if self.is_unfolded(node) else ()

    def size(self, node: Node) -> Size:
        """Return how large a node is drawn."""
        rows_ = ceil(len(self.members_shown(node)) / CELLS)
        text = BEHIND_SHAPE + len(self.heading(node)) * FIRST_CHARACTER + INSET
        least = MANY if len(node.members) > 1 or node.kind is NodeKind.GATE else NARROW
        width = min(max(text, least), WIDE)
        return Size(round(width), HEIGHT + (rows_ * CELL + INSET + 8 if self.is_unfolded(node) else 0))

    def node(self, node: Node, picture: Layout, titles: Mapping[str, str]) -> DrawnNode:
        """Return a node with all that is drawn of it."""
        box, first, second = picture.boxes[node.id], self.heading(node), self.standing(node)
        return DrawnNode(
            id=node.id,
            anchor=anchor(node.id),
            box=box,
            kind=str(node.kind),
            status=look_of(node.status),
            shape=SHAPES[look_of(node.status)],
            first=fitting(first, int((box.width - BEHIND_SHAPE - 6) / FIRST_CHARACTER), keep_end=True),
            second=fitting(self.brief(node) or second, int((box.width - 2 * INSET) / SECOND_CHARACTER)),
            heading=first,
            standing=second,
            title=f"{first}: {second}",
            outline=outline(node, box),
            address=self.address(node),
            many=len(node.members) > 1,
            critical=self.is_critical(node),
            parts=tuple(parts(node, box.width)),
            bar=HEIGHT - 9,
            foot=box.height - 8,
            middle=box.width / 2,
            right=box.width - INSET,
            cells=tuple(self.cells(node)),
            earlier=self.page_address(node, -1),
            later=self.page_address(node, 1),
            shown=self.shown(node),
            before=tuple(titles[source] for source, target in self.folded.edges if target == node.id),
            after=tuple(titles[target] for source, target in self.folded.edges if source == node.id),
        )

    def heading(self, node: Node) -> str:
        """Return what a node is: its type, and how many works it stands for."""
        name = _("gate") if node.kind is NodeKind.GATE or node.type == GATE_TYPE else node.type
        if node.kind is NodeKind.OUTSIDE:
            name = _("%(type)s of another group") % {"type": name or _("work")}
        many = len(node.members)
        return f"{name} × {number_text(many)}" if many > 1 else name

    def standing(self, node: Node) -> str:
        """Return how a node stands."""
        member, *others = node.members
        if others:
            counts = list(node.counts.items())
            named = [f"{number_text(count)} {LABELS.get(status, status)}" for status, count in counts]
            return ", ".join(named[:NAMED] + (["…"] if len(named) > NAMED else []))
        standing = self.workflow.standings.get(member.id)
        text = status_text(member)
        if standing is None or member.status not in (Status.BLOCKED, Status.DEAD, Status.SUCCESS):
            return text
        if member.status == Status.SUCCESS and node.kind is not NodeKind.GATE:
            return text
        return f"{text}: {progress(standing)}"

    def brief(self, node: Node) -> str:
        """Return how far a gate is, without its status, which is shown by shape; nothing of other works."""
        standing = self.workflow.standings.get(node.id)
        is_gate = node.kind is NodeKind.GATE and len(node.members) == 1
        return progress(standing) if standing and is_gate else ""

    def address(self, node: Node) -> str | None:
        """Return where a node leads: one work to its page, several to the page that shows them, or back."""
        if node.kind is NodeKind.PLANNED:
            return None
        if len(node.members) == 1:
            return self.addresses.work(node.id)
        return self.addresses.folded if self.is_unfolded(node) else self.addresses.unfolded(node.id, 1)

    def page_address(self, node: Node, step: int) -> str | None:
        """Return the address of the members before or after those that are drawn."""
        page = self.unfolding.page + step
        if not self.is_unfolded(node) or not 1 <= page <= ceil(len(node.members) / A_PAGE):
            return None
        return self.addresses.unfolded(node.id, page)

    def shown(self, node: Node) -> str:
        """Return which members of an unfolded node are drawn, if not all."""
        total = len(node.members)
        if not self.is_unfolded(node) or total <= A_PAGE:
            return ""
        start = (self.unfolding.page - 1) * A_PAGE
        last = min(start + A_PAGE, total)
        return _("%(first)s–%(last)s of %(total)s") % {
            "first": number_text(start + 1),
            "last": number_text(last),
            "total": number_text(total),
        }

    def cells(self, node: Node) -> Iterator[Cell]:
        """Yield the members of an unfolded node, in rows."""
        for index, member in enumerate(self.members_shown(node)):
            row, column = divmod(index, CELLS)
            yield Cell(
                id=member.id,
                anchor=anchor(f"member {member.id}"),
                x=INSET + column * CELL,
                y=HEIGHT + row * CELL,
                status=look_of(member.status),
                shape=SHAPES[look_of(member.status)],
                title=f"{member.type} {member.id}: {status_text(member)}",
                address=None if member.kind is NodeKind.PLANNED else self.addresses.work(member.id),
            )

    def edges(self, picture: Layout) -> Iterator[DrawnEdge]:
        """Yield the edges, those of the critical path last, so that they lie above the others."""
        critical = {node.id for node in self.folded.nodes if self.is_critical(node)}
        routes = sorted(picture.routes.items(), key=lambda route: critical.issuperset(route[0]))
        for (source, target), points in routes:
            is_critical = critical.issuperset((source, target))
            yield DrawnEdge(source, target, line(points), head(points[-1]), is_critical)


def look_of(status: str) -> str:
    """Return the status that is drawn: one that has no shape counts as unknown."""
    return status if status in SHAPES else UNKNOWN


def number_text(value: int) -> str:
    """Return a number with its thousands apart."""
    return number_format(value, use_l10n=True, force_grouping=True)


def anchor(id: str) -> str:
    """Return the id of a node within the page; ids of works may have any characters."""
    return f"ayework-node-{blake2b(id.encode(errors='backslashreplace'), digest_size=6).hexdigest()}"


def status_text(member: Member) -> str:
    """Return a member's status, and why it is dead."""
    text = str(LABELS.get(member.status, member.status))
    reason = REASON_LABELS.get(member.reason, member.reason)
    return f"{text}, {reason}" if reason else text


def progress(standing: Standing) -> str:
    """Return how far a condition is.

    >>> progress(Standing(3, 5, 5, True, 0))
    '3 of 5 succeeded'
    """
    text = (
        _("%(reached)s of %(needed)s succeeded")
        if standing.counts_success
        else _("%(reached)s of %(needed)s ended")
    )
    text %= {
        "reached": number_text(min(standing.reached, standing.needed)),
        "needed": number_text(standing.needed),
    }
    if standing.needed == standing.total:
        return text
    return _("%(text)s, of %(total)s") % {"text": text, "total": number_text(standing.total)}


def fitting(text: str, length: int, keep_end: bool = False) -> str:
    """Return a text that fits; of a type the end says most.

    >>> fitting("warehouse.pick", 9, keep_end=True), fitting("12 dead, 3 running", 9)
    ('…use.pick', '12 dead,…')
    """
    if len(text) <= length:
        return text
    return f"…{text[1 - length :]}" if keep_end else f"{text[: length - 1]}…"


def outline(node: Node, box: Box) -> str:
    """Return the outline of a node as a path: a gate has pointed ends, all others round corners."""
    right, bottom = box.width, box.height
    if node.kind is NodeKind.GATE or node.type == GATE_TYPE:
        return f"M12 0H{right - 12:g}L{right:g} {bottom / 2:g}L{right - 12:g} {bottom:g}H12L0 {bottom / 2:g}z"
    return f"M6 0H{right - 6:g}q6 0 6 6V{bottom - 6:g}q0 6 -6 6H6q-6 0 -6 -6V6q0 -6 6 -6z"


def parts(node: Node, whole: float) -> Iterator[Part]:
    """Yield the bar of a node's statuses; each has at least 3 pixels: one dead of thousands is seen."""
    if len(node.members) < 2:
        return
    counts = node.counts
    room = whole - 2 * INSET - 3 * len(counts)
    x: float = INSET
    for status, count in counts.items():
        width = round(3 + room * count / len(node.members), 1)
        yield Part(round(x, 1), width, look_of(status))
        x += width


def line(points: Sequence[tuple[float, float]]) -> str:
    """Return the path through the points of an edge: bent between layers, straight within them."""
    path = f"M{points[0][0]:g} {points[0][1]:g}"
    for index, ((x, y), (to_x, to_y)) in enumerate(pairwise(points)):
        if index % 2:
            path += f"H{to_x:g}"
        else:
            half = round((x + to_x) / 2, 1)
            path += f"C{half:g} {y:g} {half:g} {to_y:g} {to_x:g} {to_y:g}"
    return path


def head(point: tuple[float, float]) -> str:
    """Return the head of an arrow that ends at a point."""
    x, y = point
    return f"M{x - 8:g} {y - 4.5:g}L{x:g} {y:g}L{x - 8:g} {y + 4.5:g}z"


def draw(
    workflow: Workflow,
    folded: Folded,
    path: Sequence[Member] = (),
    addresses: Addresses | None = None,
    unfolding: Unfolding | None = None,
) -> Drawing:
    """Return the picture of a folded workflow, with its critical path; that of one work is not marked."""
    ids = frozenset(member.id for member in path) if len(path) > 1 else frozenset[str]()
    return Artist(workflow, folded, addresses or Addresses(), unfolding or Unfolding(), ids).draw()
