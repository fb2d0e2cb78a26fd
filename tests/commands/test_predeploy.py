"""``ayework_predeploy``: what is stored and does not fit the code."""

import json
from io import StringIO
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from django_ayework import batch_work, dependency, enqueue, registry, schedule, work
from django_ayework.documentation import entry_url
from django_ayework.management.commands import ayework_predeploy
from django_ayework.models import Work
from django_ayework.rules.codec import CustomType, RichJSON
from django_ayework.store import selection
from django_ayework.testing.factories import ScheduleFactory, WorkerProcessFactory, WorkFactory
from tests.app.works import add, notify, pay
from tests.commands.conftest import ended
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


class Checked(NamedTuple):
    status: int
    answer: dict[str, Any]
    progress: str

    @property
    def found(self) -> set[tuple[str, str, str, str, int]]:
        keys = ("subject", "cause", "name", "detail", "number")
        return {tuple(group[key] for key in keys) for group in self.answer["groups"]}

    @property
    def examples(self) -> list[list[str]]:
        return [group["examples"] for group in self.answer["groups"]]


def predeploy(*arguments: str) -> Checked:
    status, out, progress = ended("ayework_predeploy", "--json", *arguments)
    return Checked(status, json.loads(out), progress)


def printed() -> list[str]:
    """Return the lines for people, which end with the advice not to deploy."""
    status, out, _ = ended("ayework_predeploy")
    assert (status, out.splitlines()[-1]) == (1, "Do not deploy yet.")
    return out.splitlines()


@pytest.fixture
def redefined():
    """Define a type anew for the rest of the test, as a new release does."""
    before = [registry.find(name) for name in registry.names()]

    def redefine(name, handler, **options):
        registry.unregister(name)
        if handler is not None:
            work(name=name, **options)(handler)

    yield redefine
    for name in registry.names():
        registry.unregister(name)
    for work_type in before:
        registry.register(work_type)


@each_database
def test_everything_that_fits_is_looked_at_and_nothing_is_locked_or_written(statements):
    enqueue(add(a=1, b=2))
    enqueue(add(a=1, b=2), delay=3600)
    enqueue(notify(order_id=1))
    enqueue(dependency(on=[enqueue(pay(1)).id], queue=[add(a=3, b=4)]))
    WorkFactory(status="success", type="shop.gone")
    WorkFactory(status="dead", type="shop.gone")
    before = list(Work.objects.order_by("id").values())
    statements.clear()
    status, answer, progress = predeploy()
    assert {sql.split()[0] for sql in statements} <= {"SELECT", "WITH", "SAVEPOINT", "RELEASE"}, statements
    for verb in ("INSERT ", "UPDATE ", "DELETE ", "FOR UPDATE"):
        assert not any(verb in sql for sql in statements)
    assert (status, progress) == (0, "")  # it was quick
    fits = {"fits": True, "complete": True, "works": 5, "schedules": 0, "groups": [], "others": 0}
    assert {key: answer[key] for key in fits} == fits
    assert list(Work.objects.order_by("id").values()) == before


@each_database
def test_arguments_that_do_not_fit_are_grouped_by_name_with_examples(redefined):
    handles = [enqueue(pay(number)) for number in range(5)]
    enqueue(add(a=1, b=2))
    redefined("shop.pay", lambda order, currency="EUR": None)
    checked = predeploy()
    assert checked.status == 1
    assert checked.found == {
        ("work", "missing_argument", "shop.pay", "order", 5),
        ("work", "unexpected_argument", "shop.pay", "order_id", 5),
    }
    assert checked.examples == [[handle.id for handle in handles[:3]]] * 2
    redefined("shop.pay", lambda **anything: None)
    assert predeploy().status == 0


def test_a_type_that_is_gone_is_named_with_the_nearest_one(redefined):
    handle = enqueue(pay(1))
    redefined("shop.pay", None)
    redefined("shop.pay2", lambda order_id: None)
    assert predeploy().found == {("work", "unknown_type", "shop.pay", "", 1)}
    lines = printed()
    assert lines[0] == "shop.pay: 1 work of this type, which the code does not define."
    assert lines[1].startswith("  Did you mean 'shop.pay2'?")
    assert lines[2] == f"  Here: {handle.id}"
    assert f"  See {entry_url('doctor', 'unknown_type')}" in lines


def test_works_whose_output_is_for_a_type_that_is_gone(redefined):
    redefined("t.fetched", lambda size: None)
    redefined("t.crawl", lambda: None, then="t.fetched")
    handle = enqueue("t.crawl", {})
    assert predeploy().found == set()
    redefined("t.fetched", None)
    checked = predeploy()
    assert (checked.status, checked.found) == (1, {("work", "unknown_target", "t.crawl", "t.fetched", 1)})
    assert printed()[:3] == [
        "t.crawl: 1 work whose output is for the type 't.fetched', which is not defined.",
        "  Correct then= of 't.crawl', or the output of these works is dropped.",
        f"  Here: {handle.id}",
    ]


class Money:
    """A class of the project's own."""


MONEY = CustomType(tag="money", type=Money, to_plain=lambda money: 1, from_plain=lambda plain: Money())


def test_values_and_inputs_that_cannot_be_read(redefined):
    def sell(price: Any) -> None: ...

    redefined("shop.sell", sell, codec=RichJSON([MONEY]))
    enqueue(registry.get("shop.sell")(price=[Money()]))
    for input in ("[]", '{"a": 17', '{"a": 4711'):
        WorkFactory(input=input)
    found = {each[3].partition(", got")[0]: (each[1], each[4]) for each in predeploy().found}
    assert found == {
        "NotDecodable: expected a stored input to be arguments by name": ("unreadable_input", 1),
        "NotDecodable: expected JSON text": ("unreadable_input", 2),  # whatever the text is
    }
    redefined("shop.sell", sell)
    assert ("work", "unknown_value", "shop.sell", "money", 1) in predeploy().found


def test_each_work_of_a_gate_counts_and_its_queue_is_checked(redefined):
    redefined("shop.ship", lambda order: None, options=lambda order: {"queue": "gone"})
    wrong = [pay(1), pay(2), registry.get("shop.ship").build({"order": 1})]
    gate = enqueue(dependency(on=[enqueue(add(a=1, b=2)).id], queue=wrong))
    redefined("shop.pay", None)
    checked = predeploy()
    assert checked.found == {
        ("release", "unknown_type", "shop.pay", "", 2),
        ("release", "unknown_queue", "gone", "", 1),
    }
    assert checked.examples == [[gate.id]] * 2
    assert predeploy("--queues", "default,gone").found == {("release", "unknown_type", "shop.pay", "", 2)}


def test_works_of_gates_are_checked_at_any_depth(redefined):
    inner = dependency(on=[enqueue(add(a=1, b=2)).id], queue=[pay(1)])
    gate = enqueue(dependency(on=[enqueue(add(a=1, b=2)).id], queue=[inner, pay(2)]))
    broken = enqueue(dependency(on=["elsewhere"], queue=[]))
    redefined("shop.pay", lambda order: None)
    checked = predeploy()
    assert checked.found == {
        ("release", "missing_argument", "shop.pay", "order", 2),
        ("release", "unexpected_argument", "shop.pay", "order_id", 2),
    }
    assert checked.examples[0] == [gate.id]
    condition = connection.ops.quote_name("condition")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE django_ayework_waiter SET {condition} = '?' WHERE work_id = '{broken.id}'")
    Work.objects.filter(id=gate.id).update(input="?")
    found = {group["examples"][0]: group["cause"] for group in predeploy().answer["groups"]}
    assert found == {broken.id: "unreadable_gate", gate.id: "unreadable_gate"}


def test_queues_are_known_by_types_workers_and_the_option():
    enqueue(add(a=1, b=2), queue="mial")
    checked = predeploy()
    assert checked.found == {("work", "unknown_queue", "mial", "", 1)}
    assert checked.answer["groups"][0]["remedy"].endswith("Did you mean 'mail'?")
    assert predeploy("--queues", "mial, mail").status == 0
    WorkerProcessFactory(queues="mail,mial")
    assert predeploy().status == 0
    assert predeploy("--queues", "mail").status == 1


def test_dead_works_are_looked_at_on_request_and_running_ones_always():
    found = {("work", "unknown_type", "shop.gone", "", 1)}
    WorkFactory(status="dead", type="shop.gone")
    assert predeploy().status == 0
    assert predeploy("--dead").found == found
    WorkFactory(status="running", type="shop.gone")
    assert predeploy().found == found


def test_schedules_whose_type_or_input_does_not_fit():
    undeclared = ScheduleFactory(name="nightly", origin="code")
    checked = predeploy()
    assert checked.found == {("schedule", "undeclared_schedule", "nightly", "", 1)}
    assert (checked.status, checked.answer["groups"][0]["blocks"]) == (0, False), "it is a note"
    undeclared.delete()
    ScheduleFactory(name="good", origin="admin", function="shop.pay", input='{"order_id": 1}')
    ScheduleFactory(name="off", origin="admin", function="shop.gone", enabled=False)
    ScheduleFactory(name="gone", origin="admin", function="shop.gone")
    ScheduleFactory(name="bad", origin="admin", function="shop.pay", input='{"order": 1}')
    checked = predeploy()
    assert checked.status == 1
    assert checked.found == {
        ("schedule", "unknown_type", "shop.gone", "", 1),
        ("schedule", "missing_argument", "shop.pay", "order_id", 1),
        ("schedule", "unexpected_argument", "shop.pay", "order", 1),
    }
    assert {examples[0] for examples in checked.examples} == {"gone", "bad"}


def test_stored_inputs_of_schedules_that_cannot_be_read(redefined):
    redefined("shop.gather", None)
    batch_work(name="shop.gather")(lambda items: [None for _ in items])
    for name, function, input in (
        ("broken", "shop.pay", "{"),
        ("listed", "shop.pay", "[7]"),
        ("batch", "shop.gather", "[7]"),
        ("empty", "shop.gather", ""),
    ):
        ScheduleFactory(name=name, origin="admin", function=function, input=input)
    checked = predeploy()
    assert {found[:3] for found in checked.found} == {("schedule", "unreadable_input", "shop.pay")}
    assert sorted(examples[0] for examples in checked.examples) == ["broken", "listed"]
    assert "no arguments by name" in {found[3] for found in checked.found}


def test_schedules_of_the_code_whose_work_has_a_type_that_is_gone(redefined):
    declared = [
        schedule(every=60, name=name, run=run)
        for name, run in (("paying", pay(1)), ("adding", add(a=1, b=2)), ("called", lambda: None))
    ]
    for each in declared:
        ScheduleFactory(name=each.name, origin="code")
    redefined("shop.pay", None)
    checked = predeploy()
    for each in declared:
        each.cancel()
    assert checked.found == {("schedule", "unknown_type", "shop.pay", "", 1)}
    assert checked.examples == [["paying"]]


@each_database
def test_the_walk_goes_page_by_page_and_ends_at_its_bounds(monkeypatch):
    monkeypatch.setattr(selection, "WINDOW", 7)
    monkeypatch.setattr(selection, "INPUTS", 3)
    WorkFactory.create_batch(20, type="shop.gone")
    WorkFactory.create_batch(15, status="success")
    assert predeploy().found == {("work", "unknown_type", "shop.gone", "", 20)}
    bounded = predeploy("--max-works", "5")
    assert (bounded.answer["complete"], bounded.answer["works"], bounded.status) == (False, 6, 1)
    assert predeploy("--max-seconds", "0.000001").answer["complete"] is False
    for option, number in (("--max-works", "0"), ("--max-seconds", "nan")):
        with pytest.raises(CommandError, match=f"expected {option} to be greater than 0, got: {number}"):
            predeploy(option, number)


def test_a_long_check_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr(ayework_predeploy, "EVERY", 0.0)
    monkeypatch.setattr(selection, "INPUTS", 2)
    WorkFactory.create_batch(3, type="shop.gone")
    lines = predeploy().progress.splitlines()
    assert [line.partition(" looked at in ")[0] for line in lines] == ["2 works", "3 works"]
    assert lines[-1].endswith(", 3 misfits.")
    assert predeploy("--verbosity", "0").progress == ""


def test_a_long_check_goes_on_when_nobody_reads_how_far_it_is(monkeypatch):
    """As in ``manage.py ayework_predeploy 2>&1 | head -1``, whose exit status would stop a deployment."""

    class Unread(StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(ayework_predeploy, "EVERY", 0.0)
    enqueue(add(a=1, b=2))
    call_command("ayework_predeploy", stdout=(out := StringIO()), stderr=Unread())
    assert out.getvalue().endswith("Everything fits.\n")
