"""``ayework_graph``: text, JSON and a picture."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from django.core.management.base import CommandError

from django_ayework import enqueue
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.app.works import add
from tests.desk.population import TEXT
from tests.graph.kit import dead_workflow

pytestmark = pytest.mark.django_db


def test_the_text_says_first_what_holds_it_up(call: Any) -> None:
    id = dead_workflow()
    dead = Work.objects.get(status="dead", type="gates.step").id
    gate = Work.objects.get(type="@work/dependency").id
    lines = call("ayework_graph", id).splitlines()
    assert lines[:3] == [
        f"{id}: All 4 works have ended, 2 of them dead or cancelled.",
        "What holds it up:",
        f"  dead  gates.step  {dead}",
    ]
    graph = lines[lines.index("Graph:") + 1 : -1]
    assert graph[:3] == [
        f"  gates.flow: success  {id}",
        "    gates.step × 2: 1 dead, 1 success",
        f"      gate: dead, unsatisfiable: 1 of 2 succeeded  {gate}",
    ]
    assert graph[3].startswith("        gates.step: never queued  ")
    assert lines[-1].startswith("Critical path: gates.flow")


def test_the_text_of_a_success(call: Any) -> None:
    id = enqueue(add(a=1, b=2)).id
    drain()
    assert call("ayework_graph", id).splitlines() == [
        f"{id}: The work has succeeded.",
        "What holds it up:",
        "  nothing",
        "Graph:",
        f"  shop.add: success  {id}",
    ]


def test_json_has_nodes_and_edges(call_json: Any) -> None:
    id = dead_workflow()
    data = call_json("ayework_graph", id)
    assert data["id"] == id
    assert data["done"] is True
    assert [(held["type"], held["status"], held["alike"]) for held in data["held_up_by"]] == [
        ("gates.step", "dead", 0),
        ("@work/dependency", "dead", 0),
    ]
    by_id = {node["id"]: node for node in data["nodes"]}
    kinds = [("work", 1), ("work", 2), ("gate", 1), ("planned", 1)]
    assert [(node["kind"], node["works"]) for node in by_id.values()] == kinds
    assert all(edge["from"] in by_id and edge["to"] in by_id for edge in data["edges"])
    assert data["not_shown"] == 0


def test_the_picture_is_a_file_of_its_own(call: Any) -> None:
    Work.objects.filter(id=(id := dead_workflow())).update(type=TEXT[:120] + "\x07")
    printed = call("ayework_graph", id, "--svg")
    svg = ElementTree.fromstring(printed)
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert svg[0].tag.endswith("style")
    assert not re.search(r"href=|<script|<img", printed)


def test_an_unknown_id_and_two_forms_are_errors(call: Any) -> None:
    with pytest.raises(CommandError, match="no group and no work has the id 'nobody'"):
        call("ayework_graph", "nobody")
    with pytest.raises(CommandError, match="expected --svg or --json, got both"):
        call("ayework_graph", "nobody", "--svg", "--json")
