"""The page of a group and ``ayework_graph``: what holds it up, its graph, unfolding, hostile texts."""

import re
from xml.etree import ElementTree

import pytest
from django.core.management.base import CommandError

from django_ayework import Count, dependency, enqueue, enqueue_many
from django_ayework.flow import drawing
from django_ayework.models import Group, Work
from django_ayework.testing import drain
from tests.admin.kit import address, assert_hides, assert_shows
from tests.app.works import add
from tests.desk.population import TEXT
from tests.gates.works import flow, step
from tests.graph.kit import chained, dead_workflow, fill
from tests.marks import on_sqlite

pytestmark = pytest.mark.django_db
PAGE = "group_change"
LIVE = "group_live"


def svg_of(text):
    """Return the graph of a page."""
    return ElementTree.fromstring(re.search(r"<svg xmlns=.*?\n</svg>", text, re.DOTALL)[0])


def labels_of(text):
    """Return the names of the graph's nodes, for screen readers."""
    return [each.attrib["aria-label"] for each in svg_of(text).iter() if "aria-label" in each.attrib][1:]


def first_member(id):
    """Return the id of the first work that the first work of a workflow queued."""
    return Work.objects.filter(parent_id=id).exclude(type="@work/dependency").earliest("queued_at", "id").id


def test_the_dead_work_is_named_first_with_its_reason_and_its_link(page):
    shown = page(PAGE, dead_workflow("abc"))
    dead = Work.objects.get(type="gates.step", status="dead")
    headings = re.findall(r"<h2 id=[^>]*>([^<]+)</h2>", shown)
    assert headings == ["What holds it up", "Graph", "Group", "Works"]
    first = shown[shown.index("<ol>") :].partition("</li>")[0]
    assert_shows(first, f'href="{address("work_change", dead.id)}"', "gave up: b is broken")
    members = shown[shown.rindex("<tbody>") :]
    assert re.findall(r"ayework-status ayework-(\w+)", members) == ["dead", "dead", *["success"] * 3]
    assert_hides(shown, "ayework-timeline", "by a bulk action")


@on_sqlite
def test_a_workflow_that_nothing_holds_up_says_how_it_stands(page):
    works = enqueue_many([add(a=1, b=2), add(a=20, b=22)], together=True)
    drain()
    text = "All 2 works have succeeded. Nothing holds it up."
    assert_shows(page(PAGE, works[0].id), text, "data-live-done")


@on_sqlite
def test_nodes_lead_to_their_work_or_unfold(page):
    id = dead_workflow()
    links = svg_of(page(PAGE, id)).iter("{http://www.w3.org/2000/svg}a")
    gate = Work.objects.get(type="@work/dependency")
    unfolding = f"{address(PAGE, id)}?unfold={first_member(id)}#graph"
    expected = [address("work_change", id), unfolding, address("work_change", gate.id)]
    assert sorted(link.attrib["href"] for link in links) == sorted(expected)


@on_sqlite
def test_every_node_says_what_it_is_and_how_it_stands_in_the_graph_and_in_a_table(page):
    shown = page(PAGE, dead_workflow("abc"))
    assert labels_of(shown) == [
        "gates.flow: success",
        "gates.step × 3: 1 dead, 2 success",
        "gate: dead, unsatisfiable: 2 of 3 succeeded",
        "gates.step: never queued",
    ]
    table = shown[shown.index("The graph as a table") :].partition("</table>")[0]
    rows = [re.sub(r"<[^>]+>|\s+", " ", row).split() for row in table.split("<tr>")[2:]]
    assert " ".join(rows[1]) == "gates.step × 3 1 dead, 2 success gates.flow gate"


def test_each_status_has_a_shape_of_its_own():
    assert len(set(drawing.SHAPES.values())) == len(drawing.SHAPES)
    assert drawing.LABELS.keys() <= drawing.SHAPES.keys()


def test_an_unfolded_node_shows_its_members_the_dead_first(page):
    id = dead_workflow("abc")
    members = Work.objects.filter(parent_id=id, type="gates.step")
    shown = page(PAGE, id, unfold=members.latest("id").id)
    squares = [label for label in labels_of(shown) if "gates.step 0" in label]
    assert [label.partition(": ")[2] for label in squares] == ["dead, aborted", "success", "success"]
    assert f'href="{address(PAGE, id)}#graph"' in shown, "another click folds it"
    for member in members:
        assert shown.count(f'href="{address("work_change", member.id)}"') >= 3  # graph, its table, members
    assert "gates.step × 3" in page(PAGE, id, unfold=members[0].id, members="99"), "beyond the last"


@on_sqlite
def test_unfolding_is_done_in_pages(page, monkeypatch):
    monkeypatch.setattr(drawing, "A_PAGE", 10)
    id = fill(37, dead=3)
    first = first_member(id)
    shown, last = page(PAGE, id, unfold=first), page(PAGE, id, unfold=first, members="4")
    for text, members in ((shown, 10), (last, 5)):
        assert len([label for label in labels_of(text) if "graph.fetch 0" in label]) == members
    assert_shows(shown, f"?unfold={first}&amp;members=2#graph", "1–10 of 35")
    assert f"?unfold={first}&amp;members=3#graph" in last


@on_sqlite
def test_an_address_that_names_no_node_unfolds_none(page):
    id = dead_workflow()
    queries = {}, {"unfold": "nobody"}, {"members": "x"}, {"members": "-1"}, {"members": "9" * 400}
    folded, *others = (labels_of(page(PAGE, id, **query)) for query in queries)
    assert others == [folded] * 4


def test_the_fragment_is_what_the_page_shows_and_changes_with_the_works(operator, page):
    id = enqueue(flow(links=[["a", "b"], ["c"]])).id
    drain(1)
    live = address(LIVE, id)
    assert f'data-live="{live}"' in page(PAGE, id)
    before = operator.get(live)
    assert "gates.step × 2: 2 pending" in before.content.decode()
    drain()
    after = operator.get(live, headers={"If-None-Match": before["ETag"]})
    assert after.status_code == 200
    assert "gates.step × 2: 2 success" in after.content.decode()
    assert operator.get(live, headers={"If-None-Match": after["ETag"]}).status_code == 304
    first = first_member(id)
    assert f'data-live="{live}?unfold={first}"' in page(PAGE, id, unfold=first)
    assert "ayework-cell" in page(LIVE, id, unfold=first)


@on_sqlite
def test_only_those_who_may_see_groups_see_the_fragment(client_with):
    id = dead_workflow()
    assert client_with("view_work").get(address(LIVE, id)).status_code == 403
    seen = client_with("view_group").get(address(LIVE, id))
    assert seen.status_code == 200
    assert address("work_change", id) not in seen.content.decode()
    assert client_with("view_group", "view_work").get(address(LIVE, "nobody")).status_code == 404


def test_a_thousand_members_are_few_statements(operator, django_assert_max_num_queries):
    id = fill(1200, dead=12)
    with django_assert_max_num_queries(20):
        shown = operator.get(address(PAGE, id)).content.decode()
    assert "graph.fetch × 1,198: 12 dead, 1,186 success" in shown
    assert len(shown) < 200_000
    first = first_member(id)
    with django_assert_max_num_queries(20):
        operator.get(address(PAGE, id, unfold=first))


@on_sqlite
def test_a_large_group_offers_bulk_actions_to_those_who_may_start_them(page, operator, client_with):
    id = fill(520, dead=3)
    bulk = f"{address('bulkaction_new')}?action=retry"
    assert f'href="{bulk}&amp;group_id={id}"' in page(PAGE, id)
    asked = operator.get(f"{bulk}&group_id={id}")
    assert asked.status_code == 200
    assert "3 works" in asked.content.decode()
    shown = client_with("view_group", "view_work", "retry_work").get(address(PAGE, id)).content.decode()
    assert address("group_retry", id) in shown
    assert "by a bulk action" not in shown


@on_sqlite
def test_hostile_texts_stay_texts(page):
    id = dead_workflow()
    Work.objects.filter(type="gates.step", status="dead").update(error=TEXT, type=TEXT[:128], unit=TEXT[:190])
    evil = "\"'><script>alert(1)</script>"
    enqueue(dependency(on=[evil], queue=[step(label="x")]), id=evil[:20])
    gate = Work.objects.get(type="@work/dependency", group_id=id)
    hidden = '<script>"]]></title>'
    Work.objects.filter(id=gate.id).update(input=gate.input.replace("gates.step", hidden.replace('"', "")))
    dead = Work.objects.get(status="dead", unit__isnull=False).id
    for query in ({}, {"unfold": dead}, {"unfold": evil}):
        shown = page(PAGE, id, **query)
        assert_hides(shown, "<script>window", "<script>]]", "<img src=x", "<script>alert")
        svg_of(shown)
    assert "onerror=window.broken=1&gt;" in shown


def test_a_chain_is_a_timeline_of_its_steps(page):
    id = enqueue(chained(left=2)).id
    drain()
    shown = page(PAGE, id)
    assert Group.objects.get(id=id).total == 3
    timeline = shown[shown.index("ayework-timeline") :].partition("</svg>")[0]
    titles = [title.partition(", ")[0] for title in re.findall(r"<title>(.*?)</title>", timeline)]
    assert titles == [f"{number}. graph.chained: success" for number in range(1, 4)]
    steps = Work.objects.filter(chain_id=id)
    assert_shows(timeline, *(f'href="{address("work_change", step.id)}"' for step in steps))


def test_the_text_says_first_what_holds_it_up(call):
    id = dead_workflow()
    dead = Work.objects.get(status="dead", type="gates.step").id
    gate = Work.objects.get(type="@work/dependency").id
    *text, never, last = call("ayework_graph", id).splitlines()
    assert text[:3] == [
        f"{id}: All 4 works have ended, 2 of them dead or cancelled.",
        "What holds it up:",
        f"  dead  gates.step  {dead}",
    ]
    assert text[text.index("Graph:") + 1 :] == [
        f"  gates.flow: success  {id}",
        "    gates.step × 2: 1 dead, 1 success",
        f"      gate: dead, unsatisfiable: 1 of 2 succeeded  {gate}",
    ]
    assert never.startswith("        gates.step: never queued  ")
    assert last.startswith("Critical path: gates.flow")


@on_sqlite
def test_the_text_of_a_success(call):
    id = enqueue(add(a=1, b=2)).id
    drain()
    text = (
        f"{id}: The work has succeeded.",
        "What holds it up:",
        "  nothing",
        "Graph:",
        f"  shop.add: success  {id}",
    )
    assert call("ayework_graph", id).splitlines() == [*text]


def test_the_text_of_a_gate_over_works_of_other_groups_that_needs_some_of_them(call):
    other, held = enqueue(add(a=1, b=2)), add(a=3, b=4)
    gate = enqueue(dependency([other, "unborn"], [held], Count(1)))
    text = call("ayework_graph", gate.id).splitlines()
    assert [line for line in text[text.index("Graph:") + 1 :] if not line.endswith("see above")] == [
        f"  shop.add of another group: pending  {other.id}",
        f"    gate: blocked: 0 of 1 ended, of 2  {gate.id}",
        f"      shop.add: to be queued  {held.id}",
        "  work of another group: not known  unborn",
    ]


@on_sqlite
def test_json_has_nodes_and_edges(call_json):
    id = dead_workflow()
    data = call_json("ayework_graph", id)
    assert (data["id"], data["done"], data["not_shown"]) == (id, True, 0)
    assert [(held["type"], held["status"], held["alike"]) for held in data["held_up_by"]] == [
        ("gates.step", "dead", 0),
        ("@work/dependency", "dead", 0),
    ]
    by_id = {node["id"]: node for node in data["nodes"]}
    kinds = [("work", 1), ("work", 2), ("gate", 1), ("planned", 1)]
    assert [(node["kind"], node["works"]) for node in by_id.values()] == kinds
    assert all(edge["from"] in by_id and edge["to"] in by_id for edge in data["edges"])


@on_sqlite
def test_the_picture_is_a_file_of_its_own(call):
    Work.objects.filter(id=(id := dead_workflow())).update(type=TEXT[:120] + "\x07")
    printed = call("ayework_graph", id, "--svg")
    svg = ElementTree.fromstring(printed)
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert svg[0].tag.endswith("style")
    assert not re.search(r"href=|<script|<img", printed)


@on_sqlite
def test_an_unknown_id_and_two_forms_are_errors(call):
    with pytest.raises(CommandError, match="no group and no work has the id 'nobody'"):
        call("ayework_graph", "nobody")
    with pytest.raises(CommandError, match="expected --svg or --json, got both"):
        call("ayework_graph", "nobody", "--svg", "--json")
