"""``ayework_retry``: dead works start over, by id or by what they have in common."""

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
def dead() -> dict[str, Any]:
    """Three dead works: two of a type, two of a reason."""
    return {
        "old": DeadLetterFactory(type="shop.add", reason="exhausted", ended_at=now() - timedelta(days=3)),
        "new": DeadLetterFactory(type="shop.add", reason="aborted", ended_at=now() - timedelta(days=1)),
        "mail": DeadLetterFactory(type="shop.notify", reason="aborted", ended_at=now() - timedelta(days=2)),
    }


def pending() -> set[str]:
    return set(Work.objects.filter(status="pending").values_list("id", flat=True))


def test_by_id(call: Any, dead: dict[str, Any]) -> None:
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
def test_by_what_they_have_in_common_the_longest_dead_first(
    call_json: Any, dead: dict[str, Any], arguments: list[str], expected: list[str]
) -> None:
    cancelled = WorkFactory(status="cancelled")
    answer = call_json("ayework_retry", *arguments)
    assert answer == {"retried": [dead[name].id for name in expected], "refused": {}}
    assert pending() == {dead[name].id for name in expected}
    cancelled.refresh_from_db()
    assert cancelled.status == "cancelled"


@pytest.mark.parametrize(
    ("type", "hint"),
    [
        ("shop.ad", "No type of work is called 'shop.ad' here. Did you mean 'shop.add'?\n"),
        ("zzz", "No type of work is called 'zzz' here.\n"),
        ("shop.fail", ""),
    ],
    ids=["nearly a type", "no type", "a type of which nothing is dead"],
)
def test_a_type_of_which_nothing_is_dead_is_hinted_at_if_nobody_knows_it(
    call: Any, dead: dict[str, Any], type: str, hint: str
) -> None:
    assert call("ayework_retry", "--type", type) == f"Retried 0 works.\n{hint}"


def test_dead_works_of_a_type_that_is_gone_are_retried_without_a_hint(call: Any) -> None:
    DeadLetterFactory(type="shop.gone")
    assert call("ayework_retry", "--type", "shop.gone") == "Retried 1 works.\n"


def test_one_refusal_does_not_undo_the_others(dead: dict[str, Any]) -> None:
    out = StringIO()
    with pytest.raises(CommandError, match="1 of 2 works could not be retried"):
        call_command("ayework_retry", "nowhere", dead["new"].id, "--json", stdout=out)
    answer = json.loads(out.getvalue())
    assert answer["retried"] == [dead["new"].id]
    assert answer["refused"] == {"nowhere": "no work has the id 'nowhere', so it cannot be retried."}
    assert pending() == {dead["new"].id}


@pytest.mark.parametrize(
    "narrowing",
    [["--all"], ["--type", "shop.add"], ["--reason", "aborted"]],
    ids=["all", "type", "reason"],
)
def test_ids_and_conditions_do_not_go_together(call: Any, dead: dict[str, Any], narrowing: list[str]) -> None:
    with pytest.raises(CommandError, match="expected either ids or --type, --reason, --all, got both"):
        call("ayework_retry", dead["old"].id, *narrowing)
    assert pending() == set()


def test_nothing_to_go_by_is_refused(call: Any, dead: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match="to say which dead works to retry"):
        call("ayework_retry")
    assert pending() == set()


def test_by_group_dead_and_cancelled_works_are_retried(call: Any) -> None:
    handles = enqueue_many([fail(), add(a=1, b=1), add(a=1, b=2)], together=True, retry=Retry(attempts=1))
    drain(limit=1, raises=False)
    cancel(handles[1].id)
    assert call("ayework_retry", "--group", handles[0].id) == "Retried 2 works.\n"
    assert pending() == {handle.id for handle in handles}
    assert call("ayework_retry", "--group", handles[0].id) == "Retried 0 works.\n"


def test_a_gate_waits_again_as_what_killed_it_is_retried(call_json: Any) -> None:
    watched = enqueue(fail(), retry=Retry(attempts=1))
    gate = enqueue(dependency(on=[watched], queue=[add(a=1, b=1)]))
    drain(raises=False)
    assert gate.state().status == "dead"
    answer = call_json("ayework_retry", gate.id, watched.id)
    assert answer == {"retried": [gate.id, watched.id], "refused": {}}
    assert (gate.state().status, watched.state().status) == ("blocked", "pending")


def test_an_unknown_group_is_refused(call: Any) -> None:
    with pytest.raises(CommandError, match="no group has the id 'nowhere', so nothing was retried"):
        call("ayework_retry", "--group", "nowhere")


def test_a_group_stands_alone(call: Any, dead: dict[str, Any]) -> None:
    for other in (["--all"], [dead["old"].id], ["--type", "shop.add"]):
        with pytest.raises(CommandError, match="expected --group alone"):
            call("ayework_retry", "--group", "g", *other)
    assert pending() == set()


def test_a_success_is_run_again_if_that_is_said(call: Any) -> None:
    done = enqueue(add(a=1, b=1))
    drain()
    with pytest.raises(CommandError, match="1 of 1 works could not be retried"):
        call("ayework_retry", done.id)
    assert call("ayework_retry", done.id, "--again") == "Retried 1 works.\n"
    assert Work.objects.get(status="pending").parent_id == done.id


def test_all_successes_are_never_run_again_at_once(call: Any, dead: dict[str, Any]) -> None:
    with pytest.raises(CommandError, match="expected ids with --again"):
        call("ayework_retry", "--all", "--again")
    assert pending() == set()


def test_a_reason_that_does_not_exist_is_refused(call: Any) -> None:
    with pytest.raises(CommandError, match="invalid choice: 'tired'"):
        call("ayework_retry", "--reason", "tired")
