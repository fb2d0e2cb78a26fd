"""Dead letters by cause, and bulk actions: asked, created, watched, stopped, resumed."""

import json
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.urls import reverse
from django.utils.html import escape

from django_ayework import enqueue, start_bulk_action, work
from django_ayework.admin.dead_letters import DeadLetterAdmin
from django_ayework.admin.gates import GateAdmin
from django_ayework.admin.works import WorkAdmin
from django_ayework.define.requests import GATE_TYPE
from django_ayework.flow import bulk_actions
from django_ayework.flow.bulk_actions import step
from django_ayework.models import BulkAction, Work
from django_ayework.store import causes as store
from django_ayework.store.database import clock
from django_ayework.testing import drain, run_bulk_actions
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.admin.kit import address, assert_hides, assert_shows, copies, hide, ids_on, logged
from tests.app.works import add
from tests.bulk.kit import ONCE, dead_works, retry_all
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
CAUSES = "deadletter_changelist"
XSS = "<script>alert(1)</script>"


@work(name="t.secret", redact=["pin"])
def secret(pin: int, name: str) -> None:
    raise RuntimeError("no luck")


@pytest.fixture
def cards(operator):
    """Return the causes that somebody sees."""

    def cards(client=operator):
        response = client.get(address(CAUSES))
        assert response.status_code == 200
        return [SimpleNamespace(**card) for card in response.context["causes"]]

    return cards


@each_database
def test_works_that_died_the_same_way_are_one_entry_whose_links_lead_to_them_alone(operator, page, cards):
    ids = dead_works(3, "no order")
    [other] = dead_works(1, "no stock")
    first, second = cards()
    assert (first.works, first.type, first.reason) == ("3", "shop.fail", "exhausted")
    assert first.heading == "RuntimeError: no order …"
    assert (second.works, second.heading) == ("1", "RuntimeError: no stock …")
    assert other in second.example
    assert "RuntimeError: no order …" in page(CAUSES)
    assert sorted(ids_on(operator.get(first.list_url))) == sorted(ids)
    [retry, *_, delete] = [text for text, _url in first.acts]
    assert (retry, delete) == ("Retry all…", "Delete all…")
    url = dict(first.acts)[retry]
    query = parse_qs(urlsplit(url).query)
    assert (query["action"], query["status"], query["type"]) == (["retry"], ["dead"], ["shop.fail"])
    assert operator.get(url).context["title"] == "Retry: 3 works"
    assert operator.get(dict(first.acts)[delete]).context["title"] == "Delete chain: 3 works"


def test_the_plain_list_is_a_link_away(operator, page):
    assert "No work is dead." in page(CAUSES)
    ids = dead_works(2)
    assert address("deadletter_list") in page(CAUSES)
    assert sorted(ids_on(operator.get(address("deadletter_list")))) == sorted(ids)
    assert address(CAUSES) in page("deadletter_list")
    assert ids_on(operator.get(address(CAUSES), {"reason": "aborted"})) == []


def test_works_that_died_before_causes_were_stored_have_an_entry_of_their_own(operator, cards):
    copies(DeadLetterFactory.build(error=""), 1200)
    error = "its condition can no longer be met: a is dead"
    DeadLetterFactory(type=GATE_TYPE, reason="unsatisfiable", error=error)
    [card, of_gate] = cards()
    assert (card.works, card.heading) == ("1,200", "no error was kept")
    assert operator.get(dict(card.acts)["Retry all…"]).context["title"] == "Retry: 1,200 works"
    assert operator.get(card.list_url).context["cl"].result_count == 1200
    assert of_gate.type == "gate", "as on other pages"
    assert "Edit and retry…" not in dict(of_gate.acts), "its input cannot be edited"


def test_only_those_who_may_retry_are_offered_to_edit_and_retry(client_with):
    dead_works(1)
    rights = ("view_work", "view_deadletter", "edit_input_work")
    for more, offered in (((), []), (("retry_work",), ["Edit and retry…"])):
        [card] = client_with(*rights, *more).get(address(CAUSES)).context["causes"]
        assert [text for text, _url in card["acts"]] == offered


@each_database
def test_many_causes_are_bounded_at_a_bounded_cost(page, monkeypatch, cards, django_assert_max_num_queries):
    monkeypatch.setattr(store, "COUNTED", 2)
    for number in [*range(30), *range(5), *range(5)]:
        DeadLetterFactory(cause=f"{number:016}", error=f"E{number}rror: x")
    assert sorted(card.works for card in cards()) == [*["1"] * 25, *["2+"] * 5]
    with django_assert_max_num_queries(12):
        cards()
    found, are_more = store.causes(3)
    assert (len(found), are_more) == (3, True)
    monkeypatch.setattr(store.causes, "__defaults__", (3,))
    assert "more causes than the" in page(CAUSES)


@each_database
def test_causes_are_told_from_one_another_in_every_part():
    for type in ("a", "b"):
        for reason in ("aborted", "exhausted"):
            for cause in ("", "1" * 16, "2" * 16):
                DeadLetterFactory(type=type, reason=reason, cause=cause)
    found, are_more = store.causes()
    assert (len(found), are_more) == (12, False)
    assert {each.works for each in found} == {1}
    assert all(each.first == each.last for each in found)


def test_what_handlers_wrote_stays_text(operator, page, cards):
    DeadLetterFactory(type=XSS[:100], error=f"ValueError: {XSS}", cause=XSS[:16])
    shown = page(CAUSES)
    assert "&lt;script&gt;" in shown
    assert "<script>alert" not in shown
    assert "<script>alert" not in operator.get(cards()[0].acts[0][1]).content.decode()


def test_the_page_takes_the_permission_to_look_and_each_act_takes_both_permissions(client_with, cards):
    dead_works(1)
    for permissions, acts in (
        ((), []),
        (("retry_work",), []),
        (("bulk_work",), []),
        (("bulk_work", "retry_work"), ["Retry all…"]),
        (("bulk_work", "delete_work"), ["Delete all…"]),
    ):
        [card] = cards(client_with("view_deadletter", *permissions))
        assert [text for text, _url in card.acts] == acts
    stranger = client_with("view_group")
    for name in ("changelist", "list", "lines"):
        assert stranger.get(address(f"deadletter_{name}")).status_code == 403


@pytest.fixture
def export(operator):
    """Return the works of the file at an address."""

    def export(url=None):
        response = operator.get(url or address("deadletter_lines"))
        assert "attachment" in response["Content-Disposition"]
        return [json.loads(line) for line in b"".join(response.streaming_content).decode().splitlines()]

    return export


def test_a_user_from_whom_works_are_hidden_sees_the_list_and_no_causes(operator, monkeypatch, export):
    hidden, shown = (dead_works(1, message)[0] for message in ("no order", "no stock"))
    hide(monkeypatch, id=hidden)
    response = operator.get(address(CAUSES))
    assert ids_on(response) == [shown]
    assert_hides(response.content.decode(), "no order", "By cause")
    assert [line["id"] for line in export()] == [shown]


@each_database
def test_the_works_of_a_cause_are_exported_as_lines_of_json(operator, monkeypatch, cards, export):
    monkeypatch.setattr("django_ayework.admin.dead_letters.EXPORT_PAGE", 2)
    ids = dead_works(5, "no order")
    dead_works(1, "no stock")
    found = export(cards()[0].export_url)
    assert sorted(line["id"] for line in found) == sorted(ids)
    assert {line["type"] for line in found} == {"shop.fail"}
    assert sorted(line["input"]["message"] for line in found) == [f"no order {number}" for number in range(5)]
    assert found[0]["error"].startswith("RuntimeError: no order")
    assert len(export()) == 6
    for wrong in ({"colour": "red"}, {"priority": "high"}, {"day": "9999-12-31"}):
        assert operator.get(address("deadletter_lines", **wrong)).status_code == 400


def test_an_export_hides_what_is_redacted(export):
    enqueue(secret(pin=4711, name="Ann"), retry=ONCE)
    drain(raises=False)
    [line] = export()
    assert line["input"] == {"pin": "••••", "name": "Ann"}
    Work.objects.update(input="garbage secret")
    assert "garbage" not in json.dumps(export())


NEW = "bulkaction_new"
PAGE = "bulkaction_change"


def ask(client, **query):
    return client.get(address(NEW, **query))


def start(client, data=None, **query):
    return client.post(address(NEW, **query), {"per_minute": "", **(data or {})})


def press(client, button, row, **options):
    return client.post(address(f"bulkaction_{button}", row.pk), **options)


def test_it_asks_first_and_then_the_request_costs_the_same_for_any_number(
    operator, monkeypatch, django_assert_max_num_queries
):
    monkeypatch.setattr("django.contrib.auth.models.User.get_username", lambda self: 4155550100)  # no text
    dead_works(30)
    query = {"action": "retry", "status": "dead", "type": "shop.fail"}
    question = ask(operator, **query)
    assert question.context["title"] == "Retry: 30 works"
    assert_shows(question.content.decode(), "shop.fail", "admin/css/forms.css")
    with django_assert_max_num_queries(20):
        response = start(operator, {"per_minute": "100"}, **query)
    row = BulkAction.objects.get()
    assert response.headers["Location"] == address(PAGE, row.pk)
    assert (row.action, row.per_minute, row.expected, row.created_by) == ("retry", 100, 30, "4155550100")
    assert not Work.objects.filter(status="pending").exists()
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.is_addition()) == (row.pk, True)
    assert logged() == ["Retry: 30 works. status: dead; type: shop.fail. 100 per minute."]
    run_bulk_actions()
    assert Work.objects.filter(status="pending").count() == 30


@each_database
def test_works_that_died_after_the_question_was_shown_are_left_alone(operator):
    dead_works(2)
    seen = clock.now()
    dead_works(1)
    for until in (seen.isoformat(), "never", "9999-01-01T00:00:00+00:00"):
        start(operator, {"until": until}, action="retry", status="dead")
    assert list(BulkAction.objects.order_by("id").values_list("expected", flat=True)) == [2, 3, 3]


@each_database
def test_an_altered_moment_without_a_place_in_the_calendar_is_the_first_that_has_one(operator):
    dead_works(1)
    response = start(operator, {"until": "0001-01-01T00:00:00+14:00"}, action="retry", status="dead")
    assert operator.get(response["Location"]).status_code == 200
    assert run_bulk_actions() == 1
    assert BulkAction.objects.get().done == 0


def test_a_pace_that_cannot_be_is_refused_in_the_form(operator):
    dead_works(1)
    for pace in ("0", "-1", "much"):
        response = start(operator, {"per_minute": pace}, action="retry")
        assert response.status_code == 200
        assert "errorlist" in response.content.decode()
    assert not BulkAction.objects.exists()


def test_a_filter_or_an_act_that_cannot_be_is_refused_in_a_sentence(operator):
    response = ask(operator, action="retry", colour=XSS)
    assert "expected the keys of filter= to be among" in response.content.decode()
    wrong = [{name: XSS} for name in ("colour", "status", "day", "priority")]
    for query in (*wrong, {XSS: "1"}, {"queue": "a\0b"}):
        response = ask(operator, action="retry", **query)
        assert response.status_code == 400
        assert XSS not in response.content.decode()
    assert ask(operator, action="explode").status_code == 403


def test_parameters_are_asked_for(operator):
    for _ in range(3):
        enqueue(add(a=1, b=2))
    query = {"action": "change_priority", "type": "shop.add"}
    assert "errorlist" in start(operator, **query).content.decode()
    start(operator, {"with-priority": "7"}, **query)
    run_bulk_actions()
    assert list(Work.objects.values_list("priority", flat=True)) == [7, 7, 7]


def test_without_an_act_the_page_offers_those_that_apply_and_explicit_ids_are_taken(operator):
    ids = dead_works(3)
    offered = [action.name for action, _url in ask(operator, status="dead").context["acts"]]
    assert offered == ["retry", "delete_chains"]
    assert len(ask(operator).context["acts"]) == 8
    assert ask(operator, action="retry", ids=",".join(ids[:2])).context["title"] == "Retry: 2 works"


@each_database
def test_the_page_shows_how_far_it_is(page):
    dead_works(30)
    row = retry_all(by="ann")
    assert "0 of 30" in page(PAGE, row.pk)
    step()
    assert_shows(page(PAGE, row.pk), "25 of 30", address("bulkaction_stop", row.pk))
    run_bulk_actions()
    assert step() is False
    shown = page(PAGE, row.pk)
    assert "data-live-done" in shown
    assert_hides(shown, address("bulkaction_stop", row.pk), address("bulkaction_resume", row.pk))
    assert_shows(page("bulkaction_changelist"), "Retry: 30 works", "ann")


def test_the_fragment_is_not_sent_again_while_nothing_changes(operator):
    live = address("bulkaction_live", retry_all().pk)
    run_bulk_actions()
    first = operator.get(live)
    assert "csrf" not in first.content.decode()
    assert operator.get(live, headers={"If-None-Match": first["ETag"]}).status_code == 304


@each_database
def test_a_bulk_action_shows_the_error_of_its_cause_after_its_works_have_left_it(operator, page, cards):
    dead_works(2, "no order")
    [(_text, retry), *_] = cards()[0].acts
    query = {name: values[0] for name, values in parse_qs(urlsplit(retry).query).items()}
    start(operator, **query)
    unknown = start_bulk_action("retry", {"type": "shop.fail", "reason": "exhausted", "cause": "f" * 16})
    run_bulk_actions()
    assert not Work.objects.filter(status="dead").exists()
    shown = page(PAGE, BulkAction.objects.get(expected=2).pk)
    assert_shows(shown, "RuntimeError: no order …")
    assert_hides(shown, query["cause"])
    assert_shows(page(PAGE, unknown.pk), "f" * 16)


def test_refusals_and_errors_stay_text(page):
    WorkFactory(id="w1", status="cancelled", type=XSS)
    row = start_bulk_action("retry", {"type": XSS}, by=XSS)
    BulkAction.objects.update(report=f'[["", "{XSS}"], ["{XSS}", "{XSS}"]]', refused=30, status="failed")
    for shown in (page(PAGE, row.pk), page("bulkaction_live", row.pk)):
        assert XSS not in shown
        assert "and 29 more" in shown
    assert XSS not in page("bulkaction_changelist")


def test_totals_that_are_not_known_and_acts_of_another_version_are_shown(page):
    row = retry_all()
    for columns, title in (
        ({"expected": 10_001}, "more than 10,000 works"),
        ({"expected": bulk_actions.UNKNOWN}, "all matching"),
        ({"action": "from_the_future"}, "from_the_future"),
    ):
        BulkAction.objects.update(**columns)
        assert title in page(PAGE, row.pk)
        assert title in page("bulkaction_changelist")


@pytest.mark.parametrize("text", ["no JSON", "[7]", '{"status": ["dead"]}', "7"])
@pytest.mark.parametrize("column", ["filter", "report"])
def test_a_stored_value_that_cannot_be_read_is_shown_as_it_is(page, column, text):
    row = retry_all()
    BulkAction.objects.update(**{column: text})
    assert escape(text) in page(PAGE, row.pk)
    run_bulk_actions()
    assert_shows(page(PAGE, row.pk), escape(text), "failed" if column == "filter" else "data-live-done")


def test_ids_that_code_gives_as_numbers_are_shown(page):
    assert "1, 2" in page(PAGE, start_bulk_action("retry", {"ids": [1, 2]}).pk)


@pytest.mark.parametrize(
    ("permissions", "may_look", "may_act"),
    [
        (("view_work", "retry_work"), False, False),
        (("view_bulkaction",), True, False),
        (("view_bulkaction", "retry_work"), True, False),
        (("bulk_work",), True, False),
        (("bulk_work", "cancel_work"), True, False),
        (("bulk_work", "retry_work"), True, True),
    ],
)
def test_it_takes_the_permission_of_the_act_and_that_of_bulk_actions(
    client_with, permissions, may_look, may_act
):
    dead_works(1)
    row, client = retry_all(), client_with(*permissions)
    for page in (PAGE, "bulkaction_live"):
        assert (client.get(address(page, row.pk)).status_code == 200) is may_look
    for button in ("stop", "resume"):
        assert (press(client, button, row).status_code == 302) is may_act
    assert (ask(client, action="retry").status_code == 200) is may_act
    assert (start(client, action="retry").status_code == 302) is may_act
    assert BulkAction.objects.count() == 1 + may_act


def test_an_overridden_permission_is_asked_without_a_work(operator, monkeypatch):
    asked = []
    monkeypatch.setattr(
        WorkAdmin, "has_retry_permission", lambda self, request, obj=None: bool(asked.append(obj))
    )
    assert ask(operator, action="retry").status_code == 403
    assert asked == [None]


@pytest.mark.parametrize("narrowed", [WorkAdmin, DeadLetterAdmin, GateAdmin])
def test_a_user_from_whom_an_admin_hides_works_cannot_act_on_works_in_bulk(operator, monkeypatch, narrowed):
    ids, row = dead_works(2), retry_all()
    hide(monkeypatch, narrowed, id=ids[0])
    for query in ({"action": "retry", "status": "dead"}, {"action": "retry", "ids": ids[0]}):
        assert ask(operator, **query).status_code == 403
        assert start(operator, **query).status_code == 403
    assert ask(operator).status_code == 403
    for button in ("stop", "resume"):
        assert press(operator, button, row).status_code == 403
    assert [each.pk for each in BulkAction.objects.filter(status="running")] == [row.pk]
    for page in ("work_changelist", "deadletter_list"):
        assert operator.get(address(page)).context["bulk"] is None


def test_a_queryset_that_hides_nothing_keeps_bulk_actions(operator, monkeypatch):
    dead_works(1)
    queryset = WorkAdmin.get_queryset
    monkeypatch.setattr(WorkAdmin, "get_queryset", lambda self, request: queryset(self, request).only("id"))
    assert ask(operator, action="retry").context["title"] == "Retry: 1 work"
    assert operator.get(address("deadletter_list")).context["bulk"] is not None


def test_the_list_of_works_links_to_all_that_match(operator, client_with, page):
    def link(client=operator, name="work_changelist", **query):
        return client.get(address(name, **query)).context["bulk"]

    dead_works(3)
    WorkFactory()
    assert "Act on all 4…" in page("work_changelist")
    assert "Act on all 3 matching…" in page("work_changelist", type="shop.fail", p="1")
    found = link(type="shop.fail", p="1")
    assert "type=shop.fail" in found["url"]
    assert operator.get(found["url"]).status_code == 200
    assert link(q="shop.fail") is link(type="shop.gone") is None
    assert "status=dead" in link(name="deadletter_list", reason="exhausted")["url"]
    assert link(client_with("view_work", "retry_work")) is None


def test_a_site_without_bulk_actions_has_no_links(page, monkeypatch):
    DeadLetterFactory()
    monkeypatch.delitem(admin.site._registry, BulkAction)
    assert "Retry all" not in page("deadletter_changelist")


def test_a_site_with_an_admin_of_works_of_its_own_has_no_bulk_actions(client_with, monkeypatch):
    DeadLetterFactory()
    monkeypatch.setitem(admin.site._registry, Work, admin.ModelAdmin(Work, admin.site))
    for staff in (client_with("view_deadletter"), client_with("view_deadletter", "bulk_work", "retry_work")):
        assert staff.get(reverse("admin:index")).status_code == 200
        assert "Retry all" not in staff.get(address(CAUSES)).content.decode()
        assert staff.get(address("bulkaction_new", action="retry", status="dead")).status_code == 403
