"""The page of a group: what holds it up first, its graph, unfolding, refreshing; hostile texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from django.test import Client
from django.urls import reverse

from django_ayework import dependency, enqueue, enqueue_many
from django_ayework.flow import drawing
from django_ayework.models import Group, Work
from django_ayework.testing import drain
from tests.admin.kit import address, assert_hides, assert_shows
from tests.app.works import add
from tests.desk.population import TEXT
from tests.gates.works import flow, step
from tests.graph.kit import dead_workflow
from tests.graph.test_reading import chained, fill

pytestmark = pytest.mark.django_db

Page = Callable[..., str]


def svg_of(text: str) -> ElementTree.Element:
    """Return the graph of a page."""
    found = re.search(r"<svg xmlns=.*?\n</svg>", text, re.DOTALL)
    assert found
    return ElementTree.fromstring(found[0])


def labels_of(text: str) -> list[str]:
    """Return the names of the graph's nodes, for screen readers."""
    return [each.attrib["aria-label"] for each in svg_of(text).iter() if "aria-label" in each.attrib][1:]


def test_the_dead_work_is_named_first_with_its_reason_and_its_link(page: Page) -> None:
    shown = page("group_change", dead_workflow())
    dead = Work.objects.get(type="gates.step", status="dead")
    headings = re.findall(r"<h2 id=[^>]*>([^<]+)</h2>", shown)
    assert headings == ["What holds it up", "Graph", "Group", "Works"]
    first = shown[shown.index("<ol>") :].partition("</li>")[0]
    assert_shows(first, f'href="{address("work_change", dead.id)}"', "gave up: b is broken")


def test_the_first_members_of_the_table_are_those_that_need_attention(page: Page) -> None:
    shown = page("group_change", dead_workflow("abc"))
    members = shown[shown.rindex("<tbody>") :]
    assert re.findall(r"ayework-status ayework-(\w+)", members) == ["dead", "dead", *["success"] * 3]


def test_a_workflow_that_nothing_holds_up_says_how_it_stands(page: Page) -> None:
    works = enqueue_many([add(a=1, b=2), add(a=20, b=22)], together=True)
    drain()
    shown = page("group_change", works[0].id)
    assert_shows(shown, "All 2 works have succeeded. Nothing holds it up.", "data-live-done")


def test_nodes_lead_to_their_work_or_unfold(page: Page) -> None:
    id = dead_workflow()
    svg = svg_of(page("group_change", id))
    links = [link.attrib["href"] for link in svg.iter("{http://www.w3.org/2000/svg}a")]
    first = Work.objects.filter(parent_id=id, type="gates.step").earliest("queued_at", "id")
    unfolding = f"{address('group_change', id)}?unfold={first.id}#graph"
    gate = Work.objects.get(type="@work/dependency")
    assert sorted(links) == sorted([address("work_change", id), unfolding, address("work_change", gate.id)])


def test_every_node_says_what_it_is_and_how_it_stands(page: Page) -> None:
    assert labels_of(page("group_change", dead_workflow("abc"))) == [
        "gates.flow: success",
        "gates.step × 3: 1 dead, 2 success",
        "gate: dead, unsatisfiable: 2 of 3 succeeded",
        "gates.step: never queued",
    ]


def test_each_status_has_a_shape_of_its_own() -> None:
    assert len(set(drawing.SHAPES.values())) == len(drawing.SHAPES)
    assert drawing.LABELS.keys() <= drawing.SHAPES.keys()


def test_an_unfolded_node_shows_its_members_the_dead_first(page: Page) -> None:
    id = dead_workflow("abc")
    members = Work.objects.filter(parent_id=id, type="gates.step")
    shown = page("group_change", id, unfold=members.latest("id").id)
    squares = [label for label in labels_of(shown) if "gates.step 0" in label]
    assert [label.partition(": ")[2] for label in squares] == ["dead, aborted", "success", "success"]
    assert f'href="{address("group_change", id)}#graph"' in shown, "another click folds it"
    for member in members:
        assert shown.count(f'href="{address("work_change", member.id)}"') >= 3  # graph, its table, members


def test_unfolding_is_done_in_pages(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "A_PAGE", 10)
    id = fill(37, dead=3)
    first = Work.objects.filter(type="graph.fetch").earliest("queued_at", "id").id
    shown = page("group_change", id, unfold=first)
    assert len([label for label in labels_of(shown) if "graph.fetch 0" in label]) == 10
    assert_shows(shown, f"?unfold={first}&amp;members=2#graph", "1–10 of 35")
    last = page("group_change", id, unfold=first, members="4")
    assert len([label for label in labels_of(last) if "graph.fetch 0" in label]) == 5
    assert f"?unfold={first}&amp;members=3#graph" in last


@pytest.mark.parametrize(
    "query", [{"unfold": "nobody"}, {"members": "x"}, {"members": "-1"}, {"members": "9" * 400}]
)
def test_an_address_that_names_no_node_unfolds_none(page: Page, query: dict[str, str]) -> None:
    id = dead_workflow()
    assert labels_of(page("group_change", id, **query)) == labels_of(page("group_change", id))


def test_a_page_beyond_the_last_shows_no_members(page: Page) -> None:
    id = dead_workflow("abc")
    first = Work.objects.filter(parent_id=id, type="gates.step")[0]
    assert "gates.step × 3" in page("group_change", id, unfold=first.id, members="99")


def test_the_graph_is_a_table_too(page: Page) -> None:
    shown = page("group_change", dead_workflow("abc"))
    table = shown[shown.index("The graph as a table") :].partition("</table>")[0]
    rows = [re.sub(r"<[^>]+>|\s+", " ", row).split() for row in table.split("<tr>")[2:]]
    assert " ".join(rows[1]) == "gates.step × 3 1 dead, 2 success gates.flow gate"


# Refreshing


def test_the_fragment_is_what_the_page_shows_and_changes_with_the_works(operator: Client) -> None:
    id = enqueue(flow(links=[["a", "b"], ["c"]])).id
    drain(1)
    live = address("group_live", id)
    assert f'data-live="{live}"' in operator.get(address("group_change", id)).content.decode()
    before = operator.get(live)
    assert before["ETag"]
    assert "gates.step × 2: 2 pending" in before.content.decode()
    drain()
    after = operator.get(live, headers={"If-None-Match": before["ETag"]})
    assert after.status_code == 200
    assert "gates.step × 2: 2 success" in after.content.decode()
    assert operator.get(live, headers={"If-None-Match": after["ETag"]}).status_code == 304


def test_the_fragment_has_the_same_node_unfolded(operator: Client) -> None:
    id = dead_workflow()
    first = Work.objects.filter(parent_id=id, type="gates.step")[0].id
    shown = operator.get(address("group_change", id, unfold=first)).content.decode()
    assert f'data-live="{address("group_live", id)}?unfold={first}"' in shown
    assert "ayework-cell" in operator.get(address("group_live", id, unfold=first)).content.decode()


def test_only_those_who_may_see_groups_see_the_fragment(client_with: Callable[..., Client]) -> None:
    id = dead_workflow()
    assert client_with("view_work").get(address("group_live", id)).status_code == 403
    seen = client_with("view_group").get(address("group_live", id))
    assert seen.status_code == 200
    assert address("work_change", id) not in seen.content.decode()
    assert client_with("view_group", "view_work").get(address("group_live", "nobody")).status_code == 404


# Large groups, buttons


def test_five_thousand_members_are_few_statements(
    operator: Client, django_assert_max_num_queries: Any
) -> None:
    id = fill(5000, dead=12)
    with django_assert_max_num_queries(20):
        shown = operator.get(address("group_change", id)).content.decode()
    assert "graph.fetch × 4,998: 12 dead, 4,986 success" in shown
    assert len(shown) < 200_000
    first = Work.objects.filter(type="graph.fetch").earliest("queued_at", "id").id
    with django_assert_max_num_queries(20):
        operator.get(address("group_change", id, unfold=first))


def test_a_large_group_offers_bulk_actions(page: Page, operator: Client) -> None:
    id = fill(520, dead=3)
    bulk = f"{reverse('admin:django_ayework_bulkaction_new')}?action=retry"
    assert f'href="{bulk}&amp;group_id={id}"' in page("group_change", id)
    asked = operator.get(f"{bulk}&group_id={id}")
    assert asked.status_code == 200
    assert "3 works" in asked.content.decode()
    assert "by a bulk action" not in page("group_change", dead_workflow())


def test_bulk_actions_are_offered_to_those_who_may_start_them(client_with: Callable[..., Client]) -> None:
    id = fill(520, dead=3)
    client = client_with("view_group", "view_work", "retry_work")
    shown = client.get(address("group_change", id)).content.decode()
    assert address("group_retry", id) in shown
    assert "by a bulk action" not in shown


# Hostile texts


def test_hostile_texts_stay_texts(page: Page) -> None:
    id = dead_workflow()
    Work.objects.filter(type="gates.step", status="dead").update(error=TEXT, type=TEXT[:128], unit=TEXT[:190])
    evil = "\"'><script>alert(1)</script>"
    enqueue(dependency(on=[evil], queue=[step(label="x")]), id=evil[:20])
    gate = Work.objects.get(type="@work/dependency", group_id=id)
    hidden = '<script>"]]></title>'
    Work.objects.filter(id=gate.id).update(input=gate.input.replace("gates.step", hidden.replace('"', "")))
    dead = Work.objects.get(status="dead", unit__isnull=False).id
    for query in ({}, {"unfold": dead}, {"unfold": evil}):
        shown = page("group_change", id, **query)
        assert_hides(shown, "<script>window", "<script>]]", "<img src=x", "<script>alert")
        svg_of(shown)
    assert "onerror=window.broken=1&gt;" in shown


# A chain


def test_a_chain_is_a_timeline_of_its_steps(page: Page) -> None:
    id = enqueue(chained(left=2)).id
    drain()
    shown = page("group_change", id)
    assert Group.objects.get(id=id).total == 3
    timeline = shown[shown.index("ayework-timeline") :].partition("</svg>")[0]
    titles = re.findall(r"<title>(.*?)</title>", timeline)
    assert [title.partition(", ")[0] for title in titles] == [
        f"{number}. graph.chained: success" for number in range(3)
    ]
    for step_ in Work.objects.filter(chain_id=id):
        assert f'href="{address("work_change", step_.id)}"' in timeline


def test_a_work_without_a_chain_has_no_timeline(page: Page) -> None:
    assert "ayework-timeline" not in page("group_change", dead_workflow())
