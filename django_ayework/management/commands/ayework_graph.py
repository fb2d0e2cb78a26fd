"""``ayework_graph``: a workflow as text, as a picture, or as JSON; first what holds it up."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.template import Context, Engine
from django.utils.translation import override

from django_ayework.flow.drawing import Drawing, DrawnNode, draw
from django_ayework.flow.graph import Held, Workflow, hold_up, is_over, read_workflow, standing_sentence
from django_ayework.management.base import JSONCommand, refused
from django_ayework.rules.formatting import storable
from django_ayework.rules.workflow import Folded, Member, critical_path, fold

PACKAGE = Path(__file__).parents[2]
#: The template's libraries of tags: a project need not have configured templates.
TAGS = {"i18n": "django.templatetags.i18n", "l10n": "django.templatetags.l10n"}
#: Characters that XML does not allow, not even escaped.
NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class Command(JSONCommand):
    """Print the graph of a group, or of the group that a work belongs to."""

    help = "Show a workflow as a graph, and first what holds it up."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the id, and ``--svg``."""
        super().add_arguments(parser)
        parser.add_argument("id", metavar="ID", help="The id of a group, or of a work.")
        parser.add_argument("--svg", action="store_true", help="Print a picture, as an SVG file.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read the workflow, then print, in English as every command does."""
        with override("en"):
            self.show(options)

    def show(self, options: dict[str, Any]) -> None:
        """Read the workflow, then print."""
        if options["svg"] and options["json"]:
            raise refused("choice", "expected --svg or --json, got both.")
        workflow = read_workflow(options["id"])
        folded = fold(workflow.members, workflow.links)
        path = critical_path(workflow.members, workflow.links)
        drawing = draw(workflow, folded, path)
        if options["svg"]:
            self.say(as_svg(drawing))
            return
        held = hold_up(workflow)
        self.answer(as_data(workflow, folded, held, path), as_text(workflow, drawing, held, path), options)


# As text


def as_text(workflow: Workflow, drawing: Drawing, held: Held, path: tuple[Member, ...]) -> str:
    """Return what holds a workflow up, then its nodes, each below one that comes before it."""
    lines = [
        f"{workflow.id}: {standing_sentence(workflow)}",
        "What holds it up:",
        *held_lines(held),
        "Graph:",
    ]
    lines += tree(drawing)
    if drawing.note:
        lines.append(f"  {drawing.note}")
    if len(path) > 1:
        lines.append("Critical path: " + " -> ".join(f"{member.type} {member.id}" for member in path))
    return storable("\n".join(lines))


def held_lines(held: Held) -> Iterator[str]:
    """Yield the works that hold a workflow up, each with its reasons."""
    if not held.holding.members:
        yield "  nothing"
    for member in held.holding.members:
        yield f"  {member.status}  {member.type}  {member.id}"
        explanation = held.reasons.get(member.id)
        yield from (f"    {reason.text}" for reason in (explanation.reasons if explanation else ()))
        if alike := held.holding.alike.get(member.id, 0):
            yield f"    {alike} more died like it."


def tree(drawing: Drawing) -> Iterator[str]:
    """Yield the nodes as a tree. A node below which others stand already is named once more, without them."""
    following: dict[str, list[str]] = defaultdict(list)
    for edge in drawing.edges:
        following[edge.source].append(edge.target)
    nodes = {node.id: node for node in drawing.nodes}
    targets = {edge.target for edge in drawing.edges}
    seen: set[str] = set()
    stack = [(node.id, 0) for node in reversed(drawing.nodes) if node.id not in targets]
    while stack:
        id, depth = stack.pop()
        below = following[id]
        yield f"{'  ' * (depth + 1)}{line_of(nodes[id])}{', see above' if id in seen and below else ''}"
        if id not in seen:
            seen.add(id)
            stack += [(target, depth + 1) for target in reversed(below)]


def line_of(node: DrawnNode) -> str:
    """Return a node as a line; only one that stands for one work has its id there."""
    many = "" if node.many else f"  {node.id}"
    return f"{node.heading}: {node.standing}{many}"


# As a picture


def as_svg(drawing: Drawing) -> str:
    """Return a picture with its own style, for a file."""
    engine = Engine(dirs=[str(PACKAGE / "templates")], libraries=TAGS)
    css = (PACKAGE / "static" / "django_ayework" / "graph.css").read_text()
    template = engine.get_template("django_ayework/graph.svg")
    text = str(template.render(Context({"drawing": drawing, "css": css}))).strip()
    return NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)


# As JSON


def as_data(workflow: Workflow, folded: Folded, held: Held, path: tuple[Member, ...]) -> dict[str, Any]:
    """Return a workflow as plain data."""
    return {
        "id": workflow.id,
        "done": is_over(workflow),
        "held_up_by": [
            {
                "id": member.id,
                "type": member.type,
                "status": member.status,
                "alike": held.holding.alike.get(member.id, 0),
                "reasons": [reason.text for reason in held.reasons[member.id].reasons]
                if member.id in held.reasons
                else [],
            }
            for member in held.holding.members
        ],
        "nodes": [
            {
                "id": node.id,
                "type": node.type,
                "kind": str(node.kind),
                "works": len(node.members),
                "statuses": node.counts,
            }
            for node in folded.nodes
        ],
        "edges": [{"from": source, "to": target} for source, target in folded.edges],
        "critical_path": [member.id for member in path],
        "not_shown": workflow.unread + folded.omitted,
    }
