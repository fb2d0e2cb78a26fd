"""``ayework_cancel``: works that have not ended end, by id, by group or by type."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_ayework import enqueue, enqueue_many
from django_ayework.models import Work
from django_ayework.testing import drain
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db


@pytest.fixture
def live() -> dict[str, str]:
    """Works that have not ended: two of a type, one of them to come; and one of another type."""
    return {
        "due": enqueue(add(a=1, b=1)).id,
        "later": enqueue(add(a=1, b=2), delay=60).id,
        "other": enqueue(fail()).id,
    }


def cancelled() -> set[str]:
    return set(Work.objects.filter(status="cancelled").values_list("id", flat=True))


def test_by_id(call: Any, live: dict[str, str]) -> None:
    assert call("ayework_cancel", live["due"], live["other"]) == "Cancelled 2 works.\n"
    assert cancelled() == {live["due"], live["other"]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--type", "shop.add"], ["due", "later"]),
        (["--type", "shop.fail"], ["other"]),
        (["--all"], ["due", "later", "other"]),
        (["--all", "--type", "shop.add"], ["due", "later"]),
    ],
    ids=["type", "another type", "all", "both"],
)
def test_by_what_they_have_in_common(
    call_json: Any, live: dict[str, str], arguments: list[str], expected: list[str]
) -> None:
    answer = call_json("ayework_cancel", *arguments)
    assert set(answer["cancelled"]) == cancelled() == {live[name] for name in expected}
    assert answer["refused"] == {}


def test_by_group(call: Any, live: dict[str, str]) -> None:
    handles = enqueue_many([add(a=1, b=n) for n in range(3)], together=True)
    assert call("ayework_cancel", "--group", handles[0].id) == "Cancelled 3 works.\n"
    assert cancelled() == {handle.id for handle in handles}
    assert call("ayework_cancel", "--group", handles[0].id) == "Cancelled 0 works.\n"


def test_an_unknown_group_is_refused(call: Any) -> None:
    with pytest.raises(CommandError, match="no group has the id 'nowhere', so nothing was cancelled"):
        call("ayework_cancel", "--group", "nowhere")


def test_a_type_of_which_nothing_is_live_is_hinted_at_if_nobody_knows_it(call: Any) -> None:
    assert call("ayework_cancel", "--type", "shop.fail") == "Cancelled 0 works.\n"
    hint = "No type of work is called 'shop.ad' here. Did you mean 'shop.add'?\n"
    assert call("ayework_cancel", "--type", "shop.ad") == f"Cancelled 0 works.\n{hint}"


def test_one_refusal_does_not_undo_the_others(live: dict[str, str]) -> None:
    drain(limit=1)
    out = StringIO()
    with pytest.raises(CommandError, match="2 of 3 works could not be cancelled"):
        call_command("ayework_cancel", "nowhere", live["due"], live["other"], "--json", stdout=out)
    answer = json.loads(out.getvalue())
    assert answer["cancelled"] == [live["other"]]
    assert answer["refused"]["nowhere"] == "no work has the id 'nowhere', so it cannot be cancelled."
    assert "has ended already: it is success" in answer["refused"][live["due"]]
    assert cancelled() == {live["other"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected ids, or --group, --type or --all to say which works to cancel"),
        (["an-id", "--all"], "expected either ids or --type, --all, got both"),
        (["an-id", "--type", "shop.add"], "expected either ids or --type, --all, got both"),
        (["an-id", "--group", "g"], "expected --group alone, or else ids or --type, --all, got both"),
        (["--all", "--group", "g"], "expected --group alone, or else ids or --type, --all, got both"),
    ],
    ids=["nothing", "ids and all", "ids and a type", "ids and a group", "a group and all"],
)
def test_works_are_chosen_in_one_way(
    call: Any, live: dict[str, str], arguments: list[str], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        call("ayework_cancel", *arguments)
    assert cancelled() == set()
