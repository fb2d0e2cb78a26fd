"""``ayework_cancel`` and ``ayework_retry``: works are chosen by id, by group or by type."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_ayework import Retry, cancel, dependency, enqueue, enqueue_many
from django_ayework.models import Work
from django_ayework.testing import drain, now
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
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


def test_works_are_cancelled_by_id(call: Any, live: dict[str, str]) -> None:
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
def test_works_are_cancelled_by_what_they_have_in_common(
    call_json: Any, live: dict[str, str], arguments: list[str], expected: list[str]
) -> None:
    answer = call_json("ayework_cancel", *arguments)
    assert set(answer["cancelled"]) == cancelled() == {live[name] for name in expected}
    assert answer["refused"] == {}


def test_works_are_cancelled_by_group(call: Any, live: dict[str, str]) -> None:
    handles = enqueue_many([add(a=1, b=n) for n in range(3)], together=True)
    assert call("ayework_cancel", "--group", handles[0].id) == "Cancelled 3 works.\n"
    assert cancelled() == {handle.id for handle in handles}
    assert call("ayework_cancel", "--group", handles[0].id) == "Cancelled 0 works.\n"
    with pytest.raises(CommandError, match="no group has the id 'nowhere', so nothing was cancelled"):
        call("ayework_cancel", "--group", "nowhere")


def test_a_refused_cancellation_does_not_undo_the_others(live: dict[str, str]) -> None:
    drain(limit=1)
    out = StringIO()
    with pytest.raises(CommandError, match="2 of 3 works could not be cancelled"):
        call_command("ayework_cancel", "nowhere", live["due"], live["other"], "--json", stdout=out)
    answer = json.loads(out.getvalue())
    assert answer["cancelled"] == [live["other"]]
    assert answer["refused"]["nowhere"] == "no work has the id 'nowhere', so it cannot be cancelled."
    assert "has ended already: it is success" in answer["refused"][live["due"]]
    assert cancelled() == {live["other"]}


@pytest.fixture
def dead() -> dict[str, Any]:
    """Three dead works: two of a type, two of a reason."""
    return {
        "old": DeadLetterFactory(type="shop.add", reason="exhausted", ended_at=now() - timedelta(days=3)),
        "new": DeadLetterFactory(type="shop.add", reason="aborted", ended_at=now() - timedelta(days=1)),
        "mail": DeadLetterFactory(type="shop.notify", reason="aborted", ended_at=now() - timedelta(days=2)),
    }


def pending() -> set[str]:
    return set(Work.objects.filter(status="pending").values_list("id", flat=True))


def test_works_are_retried_by_id(call: Any, dead: dict[str, Any]) -> None:
    cancelled = WorkFactory(status="cancelled")
    assert call("ayework_retry", dead["old"].id, cancelled.id) == "Retried 2 works.\n"
    assert pending() == {dead["old"].id, cancelled.id}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--type", "shop.add"], ["old", "new"]),
        (["--reason", "aborted"], ["mail", "new"]),
        (["--type", "shop.add", "--reason", "aborted"], ["new"]),
        (["--all"], ["old", "mail", "new"]),
        (["--type", "nothing"], []),
    ],
    ids=["type", "reason", "both", "all", "none"],
)
def test_works_are_retried_by_what_they_have_in_common_the_longest_dead_first(
    call_json: Any, dead: dict[str, Any], arguments: list[str], expected: list[str]
) -> None:
    cancelled = WorkFactory(status="cancelled")
    answer = call_json("ayework_retry", *arguments)
    assert answer == {"retried": [dead[name].id for name in expected], "refused": {}}
    assert pending() == {dead[name].id for name in expected}
    cancelled.refresh_from_db()
    assert cancelled.status == "cancelled"


@pytest.mark.parametrize(
    ("command", "done"), [("ayework_cancel", "Cancelled 0 works.\n"), ("ayework_retry", "Retried 0 works.\n")]
)
@pytest.mark.parametrize(
    ("type", "hint"),
    [
        ("shop.ad", "No type of work is called 'shop.ad' here. Did you mean 'shop.add'?\n"),
        ("zzz", "No type of work is called 'zzz' here.\n"),
        ("shop.fail", ""),
    ],
    ids=["nearly a type", "no type", "a type without such works"],
)
def test_an_unknown_type_is_answered_with_the_nearest(
    call: Any, command: str, done: str, type: str, hint: str
) -> None:
    assert call(command, "--type", type) == f"{done}{hint}"
    if command == "ayework_retry":
        DeadLetterFactory(type=type)  # known or not
        assert call(command, "--type", type) == "Retried 1 work.\n"


def test_a_refused_retry_does_not_undo_the_others(dead: dict[str, Any]) -> None:
    out = StringIO()
    with pytest.raises(CommandError, match="1 of 2 works could not be retried"):
        call_command("ayework_retry", "nowhere", dead["new"].id, "--json", stdout=out)
    answer = json.loads(out.getvalue())
    assert answer["retried"] == [dead["new"].id]
    assert answer["refused"] == {"nowhere": "no work has the id 'nowhere', so it cannot be retried."}
    assert pending() == {dead["new"].id}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("cancel", "expected ids, or --group, --type or --all to say which works to cancel"),
        ("cancel an-id --all", "expected either ids or --type, --all, got both"),
        ("cancel an-id --type shop.add", "expected either ids or --type, --all, got both"),
        ("cancel an-id --group g", "expected --group alone, or else ids or --type, --all, got both"),
        ("cancel --all --group g", "expected --group alone, or else ids or --type, --all, got both"),
        ("retry", "to say which dead works to retry"),
        ("retry an-id --all", "expected either ids or --type, --reason, --all, got both"),
        ("retry an-id --type shop.add", "expected either ids or --type, --reason, --all, got both"),
        ("retry an-id --reason aborted", "expected either ids or --type, --reason, --all, got both"),
        ("retry --group g --all", "expected --group alone"),
        ("retry --group g an-id", "expected --group alone"),
        ("retry --group g --type shop.add", "expected --group alone"),
        ("retry --group nowhere", "no group has the id 'nowhere', so nothing was retried"),
        ("retry --all --again", "expected ids with --again"),
        ("retry --type= --reason aborted", "expected --type to have a value, got an empty text"),
        ("cancel --type= --all", "expected --type to have a value, got an empty text"),
        ("cancel --group= --type shop.add", "expected --group to have a value, got an empty text"),
        ("retry --reason tired", "invalid choice: 'tired'"),
    ],
)
@pytest.mark.usefixtures("live", "dead")
def test_works_are_chosen_in_one_way(call: Any, command: str, message: str) -> None:
    before = list(Work.objects.order_by("id").values_list("id", "status"))
    with pytest.raises(CommandError, match=message):
        call(*f"ayework_{command}".split())
    assert list(Work.objects.order_by("id").values_list("id", "status")) == before


def test_by_group_dead_and_cancelled_works_are_retried(call: Any) -> None:
    handles = enqueue_many([fail(), add(a=1, b=1), add(a=1, b=2)], together=True, retry=Retry(attempts=1))
    drain(limit=1, raises=False)
    cancel(handles[1].id)
    assert call("ayework_retry", "--group", handles[0].id) == "Retried 2 works.\n"
    assert pending() == {handle.id for handle in handles}
    assert call("ayework_retry", "--group", handles[0].id) == "Retried 0 works.\n"


def test_a_gate_waits_again_when_its_blocker_is_retried(call_json: Any) -> None:
    watched = enqueue(fail(), retry=Retry(attempts=1))
    gate = enqueue(dependency(on=[watched], queue=[add(a=1, b=1)]))
    drain(raises=False)
    assert gate.state().status == "dead"
    answer = call_json("ayework_retry", gate.id, watched.id)
    assert answer == {"retried": [gate.id, watched.id], "refused": {}}
    assert (gate.state().status, watched.state().status) == ("blocked", "pending")


def test_a_success_is_run_again_if_that_is_said(call: Any) -> None:
    done = enqueue(add(a=1, b=1))
    drain()
    with pytest.raises(CommandError, match="1 of 1 works could not be retried"):
        call("ayework_retry", done.id)
    assert call("ayework_retry", done.id, "--again") == "Retried 1 work.\n"
    assert Work.objects.get(status="pending").parent_id == done.id
