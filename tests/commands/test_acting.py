"""Commands that act on works, which are chosen by id, by group or by type; and controls from a shell."""

import json
import re
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection

from django_ayework import Retry, Status, dependency, enqueue, enqueue_many
from django_ayework.models import Work, WorkControl
from django_ayework.testing import drain, now
from django_ayework.testing.factories import DeadLetterFactory, WorkFactory
from tests.app.works import add, fail
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


@pytest.fixture
def live():
    """Works that have not ended: two of a type, one of them to come; and one of another type."""
    return {
        "due": enqueue(add(a=1, b=1)).id,
        "later": enqueue(add(a=1, b=2), delay=60).id,
        "other": enqueue(fail()).id,
    }


@pytest.fixture
def dead():
    """Three dead works: two of a type, two of a reason."""
    return {
        name: DeadLetterFactory(type=type, reason=reason, ended_at=now() - timedelta(days=days)).id
        for name, type, reason, days in (
            ("old", "shop.add", "exhausted", 3),
            ("new", "shop.add", "aborted", 1),
            ("mail", "shop.notify", "aborted", 2),
        )
    }


def those(status: str) -> set[str]:
    """Return the ids of works of this status."""
    return set(Work.objects.filter(status=status).values_list("id", flat=True))


def refused(message: str, *arguments: str) -> dict:
    """Call a command that fails; return what it printed as JSON."""
    out = StringIO()
    with pytest.raises(CommandError, match=message):
        call_command(*arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


@pytest.mark.django_db(transaction=True)
def test_works_behind_one_that_the_database_refuses_are_named(dead):
    def full(run, sql, params, many, context):
        if sql.startswith("UPDATE") and dead["new"] in str(params):
            raise OperationalError("the disk is full")
        return run(sql, params, many, context)

    with connection.execute_wrapper(full):
        answer = refused("2 of 3 works could not be retried", "ayework_retry", *dead.values())
    assert answer["retried"] == [dead["old"]] == [*those("pending")]
    assert [*answer["refused"]] == [dead["new"], dead["mail"]]
    assert "has refused a statement: the disk is full." in answer["refused"][dead["mail"]]


def test_works_are_chosen_by_id(call, live, dead):
    assert call("ayework_cancel", live["due"], live["other"]) == "Cancelled 2 works.\n"
    assert those("cancelled") == {live["due"], live["other"]}
    assert call("ayework_retry", dead["old"], live["due"]) == "Retried 2 works.\n"
    assert those("pending") == {dead["old"], live["due"]}


@each_database
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--type shop.add", ["due", "later"]),
        ("--type shop.fail", ["other"]),
        ("--all", ["due", "later", "other"]),
        ("--all --type shop.add", ["due", "later"]),
    ],
)
def test_works_are_cancelled_by_what_they_have_in_common(call_json, live, arguments, expected):
    answer = call_json("ayework_cancel", *arguments.split())
    assert set(answer["cancelled"]) == those("cancelled") == {live[name] for name in expected}
    assert answer["refused"] == {}


@each_database
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--type shop.add", ["old", "new"]),
        ("--reason aborted", ["mail", "new"]),
        ("--type shop.add --reason aborted", ["new"]),
        ("--all", ["old", "mail", "new"]),
        ("--type nothing", []),
    ],
)
def test_works_are_retried_by_what_they_have_in_common_the_longest_dead_first(
    call_json, dead, arguments, expected
):
    cancelled = WorkFactory(status="cancelled")
    ids = [dead[name] for name in expected]
    assert call_json("ayework_retry", *arguments.split()) == {"retried": ids, "refused": {}}
    assert (those("pending"), those("cancelled")) == (set(ids), {cancelled.id})


@each_database
def test_works_are_chosen_by_group(call, live):
    """Dead and cancelled ones are retried."""
    requests = [fail(), add(a=1, b=1), add(a=1, b=2)]
    ids = [handle.id for handle in enqueue_many(requests, together=True, retry=Retry(attempts=1), priority=1)]
    drain(limit=1, raises=False)
    for said in ("Cancelled 2 works.\n", "Cancelled 0 works.\n"):
        assert call("ayework_cancel", "--group", ids[0]) == said
    assert (those("cancelled"), those("dead")) == (set(ids[1:]), {ids[0]})
    for said in ("Retried 3 works.\n", "Retried 0 works.\n"):
        assert call("ayework_retry", "--group", ids[0]) == said
    assert those("pending") == {*ids, live["due"], live["other"]}


@each_database
def test_a_refused_act_does_not_undo_the_others(live, dead):
    drain(limit=1)
    message = "2 of 3 works could not be cancelled"
    answer = refused(message, "ayework_cancel", "nowhere", live["due"], live["other"])
    assert answer["cancelled"] == [live["other"]]
    assert answer["refused"]["nowhere"] == "no work has the id 'nowhere', so it cannot be cancelled."
    assert "has ended already: it is success" in answer["refused"][live["due"]]
    assert those("cancelled") == {live["other"]}
    answer = refused("1 of 2 works could not be retried", "ayework_retry", "nowhere", dead["new"])
    assert answer["retried"] == [dead["new"]]
    assert answer["refused"] == {"nowhere": "no work has the id 'nowhere', so it cannot be retried."}
    assert those("pending") == {dead["new"]}


@pytest.mark.parametrize(
    ("command", "done"), [("cancel", "Cancelled 0 works.\n"), ("retry", "Retried 0 works.\n")]
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
def test_an_unknown_type_is_answered_with_the_nearest(call, command, done, type, hint):
    assert call(f"ayework_{command}", "--type", type) == f"{done}{hint}"
    if command == "retry":
        DeadLetterFactory(type=type)  # known or not
        assert call("ayework_retry", "--type", type) == "Retried 1 work.\n"


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
        ("cancel --group nowhere", "no group has the id 'nowhere', so nothing was cancelled"),
        ("retry --group nowhere", "no group has the id 'nowhere', so nothing was retried"),
        ("retry --all --again", "expected ids with --again"),
        ("retry --type= --reason aborted", "expected --type to have a value, got an empty text"),
        ("cancel --type= --all", "expected --type to have a value, got an empty text"),
        ("cancel --group= --type shop.add", "expected --group to have a value, got an empty text"),
        ("retry --reason tired", "invalid choice: 'tired'"),
    ],
)
@pytest.mark.usefixtures("live", "dead")
def test_works_are_chosen_in_one_way(call, command, message):
    before = list(Work.objects.order_by("id").values_list("id", "status"))
    with pytest.raises(CommandError, match=message):
        call(*f"ayework_{command}".split())
    assert list(Work.objects.order_by("id").values_list("id", "status")) == before


def test_a_gate_waits_again_when_its_blocker_is_retried(call_json):
    watched = enqueue(fail(), retry=Retry(attempts=1))
    gate = enqueue(dependency(on=[watched], queue=[add(a=1, b=1)]))
    drain(raises=False)
    assert gate.state().status == "dead"
    answer = call_json("ayework_retry", gate.id, watched.id)
    assert answer == {"retried": [gate.id, watched.id], "refused": {}}
    assert (gate.state().status, watched.state().status) == ("blocked", "pending")


def test_a_success_is_run_again_if_that_is_said(call):
    done = enqueue(add(a=1, b=1))
    drain()
    refused("1 of 1 works could not be retried", "ayework_retry", done.id)
    assert call("ayework_retry", done.id, "--again") == "Retried 1 work.\n"
    assert Work.objects.get(status="pending").parent_id == done.id


@pytest.mark.parametrize(
    ("command", "option", "hint"),
    [
        ("ayework_cancel", "--al", ". Did you mean '--all'?"),
        ("ayework_worker", "--concurency=4", ". Did you mean '--concurrency'?"),
        ("ayework_retry", "--zzzzz", ""),
        ("ayework_typing", "--json", ""),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_nearest_one(live, command, option, hint):
    message = re.escape(f"unrecognized arguments: {option}{hint}") + "$"
    with pytest.raises(CommandError, match=message):
        call_command(command, option)
    assert not those("cancelled")


@each_database
def test_types_and_queues_are_paused_and_resumed_by_name(call):
    of_type, in_queue, other = enqueue(add(a=1, b=1)), enqueue(add(a=1, b=2), queue="mail"), enqueue(fail())
    said = call("ayework_pause", "--type", add.name, fail.name, "--queue", "mail")
    assert said == f"Paused: {add.name}, {fail.name}, mail.\n"
    drain()
    assert {handle.state().status for handle in (of_type, in_queue, other)} == {Status.PENDING}
    assert call("ayework_resume", "--type", add.name) == f"Resumed: {add.name}.\n"
    drain()
    assert [handle.state().status for handle in (of_type, in_queue)] == [Status.SUCCESS, Status.PENDING]
    call("ayework_resume", "--queue", "mail")
    drain()
    assert in_queue.state().status == Status.SUCCESS


def test_nothing_is_paused_if_one_name_is_refused():
    with pytest.raises(CommandError, match=r"no work is named 'shop\.ad'"):
        call_command("ayework_pause", "--type", add.name, "shop.ad")
    assert not WorkControl.objects.filter(paused=True).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ayework_pause"], "expected --type or --queue to say which types or queues are paused"),
        (["ayework_resume"], "expected --type or --queue to say which types or queues are resumed"),
        (["ayework_pause", "--queue", ""], "queue"),
        (["ayework_limit", "ad", "--weight", "3"], "no work is named 'ad'"),
        (
            ["ayework_limit", add.name],
            "expected --max-running or --weight or --priority to say which limit of",
        ),
        (["ayework_limit", add.name, "--max-running", "-1"], "max_running"),
        (["ayework_limit", add.name, "--weight", "0"], "weight"),
        (["ayework_limit", add.name, "--max-runing", "2"], "Did you mean '--max-running'"),
    ],
)
def test_a_mistake_is_a_sentence_and_changes_nothing(arguments, message):
    with pytest.raises(CommandError, match=message):
        call_command(*arguments)
    assert not WorkControl.objects.filter(paused=True).exists()


def test_a_type_is_limited_and_what_is_not_given_stays(call, call_json):
    said = call("ayework_limit", add.name, "--max-running", "2", "--priority", "1")
    assert said == f"{add.name}: max_running 2, priority 1.\n"
    assert call_json("ayework_limit", add.name, "--max-running", "0") == {"type": add.name, "max_running": 0}
    control = WorkControl.objects.get(name=add.name)
    assert (control.max_running, control.weight, control.priority) == (0, None, 1)


def test_answers_in_json(call_json):
    paused = {"types": [add.name], "queues": ["mail"]}
    arguments = ["--type", add.name, "--queue", "mail"]
    assert call_json("ayework_pause", *arguments) == {"paused": paused}
    assert call_json("ayework_resume", *arguments) == {"resumed": paused}
