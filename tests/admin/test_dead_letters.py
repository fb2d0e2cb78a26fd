"""Dead letters by cause, and what can be done about all of a kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from django_ayework import enqueue, work
from django_ayework.define.requests import GATE_TYPE
from django_ayework.models import Work
from django_ayework.store import causes as store
from django_ayework.testing import drain
from django_ayework.testing.factories import DeadLetterFactory
from tests.admin.conftest import Page
from tests.admin.kit import address, assert_hides, hide, ids_on
from tests.bulk.kit import ONCE, dead_works

pytestmark = pytest.mark.django_db
XSS = "<script>alert(1)</script>"


def cards(client: Client) -> list[Any]:
    response = client.get(address("deadletter_changelist"))
    assert response.status_code == 200
    return list(response.context["causes"])


def test_works_that_died_the_same_way_are_one_entry(operator: Client, page: Page) -> None:
    dead_works(3, "no order")
    [other] = dead_works(1, "no stock")
    first, second = cards(operator)
    assert (first.works, first.type, first.reason) == ("3", "shop.fail", "exhausted")
    assert first.heading == "RuntimeError: no order …"
    assert (second.works, second.heading) == ("1", "RuntimeError: no stock …")
    assert other in second.example
    texts = [text for text, _url in first.acts]
    assert (texts[0], texts[-1]) == ("Retry all…", "Delete all…")
    assert "RuntimeError: no order …" in page("deadletter_changelist")


def test_the_links_of_a_cause_lead_to_its_works_alone(operator: Client) -> None:
    ids = dead_works(2, "no order")
    dead_works(1, "no stock")
    first = cards(operator)[0]
    assert sorted(ids_on(operator.get(first.list_url))) == sorted(ids)
    url = dict(first.acts)["Retry all…"]
    query = parse_qs(urlsplit(url).query)
    assert (query["action"], query["status"], query["type"]) == (["retry"], ["dead"], ["shop.fail"])
    assert operator.get(url).context["title"] == "Retry: 2 works"
    assert operator.get(dict(first.acts)["Delete all…"]).context["title"] == "Delete chain: 2 works"


def test_without_dead_works_it_says_so(page: Page) -> None:
    assert "No work is dead." in page("deadletter_changelist")


def test_the_plain_list_is_a_link_away(operator: Client) -> None:
    ids = dead_works(2)
    assert address("deadletter_list") in operator.get(address("deadletter_changelist")).content.decode()
    response = operator.get(address("deadletter_list"))
    assert sorted(ids_on(response)) == sorted(ids)
    assert address("deadletter_changelist") in response.content.decode()
    assert ids_on(operator.get(address("deadletter_changelist"), {"reason": "aborted"})) == []


def test_works_that_died_before_causes_were_stored_have_an_entry_of_their_own(operator: Client) -> None:
    Work.objects.bulk_create(DeadLetterFactory.build_batch(1200, error=""))
    [card] = cards(operator)
    assert (card.works, card.heading) == ("1,200", "no error was kept")
    assert operator.get(dict(card.acts)["Retry all…"]).context["title"] == "Retry: 1,200 works"
    assert operator.get(card.list_url).context["cl"].result_count == 1200


def test_a_gate_that_died_is_named_as_on_other_pages_and_its_input_cannot_be_edited(operator: Client) -> None:
    DeadLetterFactory(
        type=GATE_TYPE, reason="unsatisfiable", error="its condition can no longer be met: a is dead"
    )
    [card] = cards(operator)
    assert card.type == "gate"
    assert "Edit and retry…" not in dict(card.acts)


def test_many_causes_are_bounded_and_the_page_says_so(operator: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(store, "COUNTED", 2)
    for number in range(5):
        DeadLetterFactory.create_batch(3, cause=f"{number:016}", error=f"E{number}rror: x")
    [first, *_rest] = cards(operator)
    assert (len(_rest), first.works) == (4, "2+")
    found, are_more = store.causes(3)
    assert (len(found), are_more) == (3, True)
    monkeypatch.setattr(store.causes, "__defaults__", (3,))
    assert "more causes than the" in operator.get(address("deadletter_changelist")).content.decode()


def test_causes_are_told_from_one_another_in_every_part(operator: Client) -> None:
    for type in ("a", "b"):
        for reason in ("aborted", "exhausted"):
            for cause in ("", "1" * 16, "2" * 16):
                DeadLetterFactory(type=type, reason=reason, cause=cause)
    found, are_more = store.causes()
    assert (len(found), are_more) == (12, False)
    assert {each.works for each in found} == {1}
    assert all(each.first == each.last for each in found)


def test_what_handlers_wrote_stays_text(operator: Client, page: Page) -> None:
    DeadLetterFactory(type=XSS[:100], error=f"ValueError: {XSS}", cause=XSS[:16])
    shown = page("deadletter_changelist")
    assert "&lt;script&gt;" in shown
    assert "<script>alert" not in shown
    url = cards(operator)[0].acts[0][1]
    assert "<script>alert" not in operator.get(url).content.decode()


def test_the_page_takes_a_few_queries(operator: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(30):
        DeadLetterFactory(cause=f"{number:016}")
    cards(operator)
    with django_assert_max_num_queries(12):
        cards(operator)


@pytest.mark.parametrize(
    ("permissions", "acts"),
    [
        ((), []),
        (("retry_work",), []),
        (("bulk_work",), []),
        (("bulk_work", "retry_work"), ["Retry all…"]),
        (("bulk_work", "delete_work"), ["Delete all…"]),
    ],
)
def test_what_is_offered_takes_both_permissions(
    client_with: Callable[..., Client], permissions: tuple[str, ...], acts: list[str]
) -> None:
    dead_works(1)
    [card] = cards(client_with("view_deadletter", *permissions))
    assert [text for text, _url in card.acts] == acts


def test_the_page_takes_the_permission_to_look(client_with: Callable[..., Client]) -> None:
    client = client_with("view_group")
    for name in ("changelist", "list", "export"):
        assert client.get(address(f"deadletter_{name}")).status_code == 403


def test_a_user_from_whom_works_are_hidden_sees_the_list_and_no_causes(
    operator: Client, monkeypatch: Any
) -> None:
    hidden, shown = (dead_works(1, message)[0] for message in ("no order", "no stock"))
    hide(monkeypatch, id=hidden)
    response = operator.get(address("deadletter_changelist"))
    assert ids_on(response) == [shown]
    text = response.content.decode()
    assert_hides(text, "no order", "By cause")
    assert [line["id"] for line in lines(operator.get(address("deadletter_export")))] == [shown]


# As a file


def lines(response: Any) -> list[dict[str, Any]]:
    text = b"".join(response.streaming_content).decode()
    return [json.loads(line) for line in text.splitlines()]


def test_the_works_of_a_cause_are_exported_as_lines_of_json(operator: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("django_ayework.admin.dead_letters.EXPORT_PAGE", 2)
    ids = dead_works(5, "no order")
    dead_works(1, "no stock")
    response = operator.get(cards(operator)[0].export_url)
    assert "attachment" in response["Content-Disposition"]
    found = lines(response)
    assert sorted(line["id"] for line in found) == sorted(ids)
    assert {line["type"] for line in found} == {"shop.fail"}
    assert sorted(line["input"]["message"] for line in found) == [f"no order {number}" for number in range(5)]
    assert found[0]["error"].startswith("RuntimeError: no order")
    assert len(lines(operator.get(address("deadletter_export")))) == 6
    for wrong in ({"colour": "red"}, {"priority": "high"}, {"day": "9999-12-31"}):
        assert operator.get(address("deadletter_export", **wrong)).status_code == 400


def test_an_export_hides_what_is_redacted(operator: Client) -> None:
    @work(name="t.secret", redact=["pin"])
    def secret(pin: int, name: str) -> None:
        raise RuntimeError("no luck")

    enqueue(secret(pin=4711, name="Ann"), retry=ONCE)
    drain(raises=False)
    [line] = lines(operator.get(address("deadletter_export")))
    assert line["input"] == {"pin": "••••", "name": "Ann"}
    Work.objects.update(input="garbage secret")
    assert "garbage" not in json.dumps(lines(operator.get(address("deadletter_export"))))
