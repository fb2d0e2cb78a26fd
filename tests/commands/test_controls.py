"""``ayework_pause``, ``ayework_resume`` and ``ayework_limit``: controls from a shell."""

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_ayework import Status, enqueue
from django_ayework.models import WorkControl
from django_ayework.testing import drain
from tests.app.works import add, fail
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


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
