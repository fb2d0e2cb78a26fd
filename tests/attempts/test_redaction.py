"""Redacted inputs are not shown: not in the admin, in logs, events or messages."""

import logging
from typing import Any

import pytest
from django.core.management import call_command

from django_ayework import Context, NotEncodable, Retry, batch_work, dependency, enqueue, explain, retry, work
from django_ayework.define.types import registry
from django_ayework.errors import ImproperWork
from django_ayework.models import Attempt, Work
from django_ayework.rules.formatting import HIDDEN
from django_ayework.testing import assert_enqueued, assert_not_enqueued, drain
from tests.admin.kit import address
from tests.app.works import add
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
SECRET = "hunter2-4111"


@pytest.fixture
def page(admin_client):
    """The text of a work's page in the admin."""
    return lambda id: admin_client.get(address("work_change", id)).content.decode()


@pytest.fixture
def pay():
    @work(name="attempts.pay", retry=Retry(attempts=1), redact=["password", "card.number"])
    def pay(password: str = "", card: Any = None, amount: Any = 1) -> int:
        if amount == 0:
            raise ValueError("nothing to pay")
        return len(password)

    return pay


def secrets(**more: Any) -> dict[str, Any]:
    return {"password": SECRET, "card": {"number": SECRET, "holder": "Ann"}, **more}


def test_the_admin_hides_the_paths_and_the_handler_gets_everything(pay, page):
    handle = enqueue(pay(**secrets(amount=17)))
    shown = page(handle.id)
    assert SECRET not in shown
    for name, value in (("password", HIDDEN), ("number", HIDDEN), ("holder", "Ann")):
        assert f"&quot;{name}&quot;: &quot;{value}&quot;" in shown
    assert "&quot;amount&quot;: 17" in shown
    assert Work.objects.get().input.count(SECRET) == 2
    drain()
    assert handle.result(timeout=0) == len(SECRET)
    registry.unregister("attempts.pay")  # the paths are stored with the work
    shown = page(handle.id)
    assert SECRET not in shown
    assert "&quot;amount&quot;: 17" in shown


def test_paths_that_are_declared_later_hide_inputs_of_earlier_works(page):
    def declare(**options: Any) -> Any:
        return work(name="attempts.pay", **options)(lambda password, pin=SECRET: None)

    handle = enqueue(declare(redact=["pin"])(password=SECRET, pin=SECRET))
    declare(redact=["password"])
    assert SECRET not in page(handle.id)


def test_an_input_that_cannot_be_read_is_hidden_altogether(pay, page):
    handle, open_one = enqueue(pay(**secrets())), enqueue(add(a=1, b=2))
    Work.objects.update(input='{"password": "' + SECRET)
    drain(raises=False)
    state = handle.state()
    assert (state.status, state.reason) == ("dead", "bad_input")
    assert state.error == (
        f"NotDecodable: expected a stored input to be arguments by name, got: {HIDDEN} "
        "(the type redacts its input)."
    )
    assert SECRET not in page(handle.id)
    assert SECRET in open_one.state().error


def test_the_works_that_a_gate_holds_are_redacted(pay, page):
    gate = enqueue(dependency(["never"], [pay(**secrets(amount=17)), add(a=1, b=2)]))
    shown = page(gate.id)
    assert SECRET not in shown
    assert "17" in shown
    assert "&quot;b&quot;:2" in shown
    registry.unregister("attempts.pay")
    assert SECRET not in page(gate.id), "the paths of an unknown type are unknown"


@pytest.mark.parametrize("stored", ['{"queue":[{"x":"%s"', '{"queue":[{"id":"a","input":"%s"}]}'])
def test_a_gate_that_cannot_be_read_is_hidden_altogether(pay, page, stored):
    watched = enqueue(add(a=1, b=2))
    gate = enqueue(dependency([watched], [pay(**secrets())]))
    Work.objects.filter(id=gate.id).update(input=stored % SECRET)
    assert SECRET not in page(gate.id)
    drain()
    assert gate.state().reason == "bad_input"
    assert HIDDEN in gate.state().error
    assert SECRET not in page(gate.id)


class Chatty:
    """A codec whose errors quote what they are given."""

    def encode(self, value: Any) -> str:
        raise NotEncodable(f"what is {value}?", path="input['password']")

    def decode(self, text: str) -> Any:
        raise ValueError(text)


HIDDEN_INPUT = f"the input of 'attempts.chatty' cannot be stored: {HIDDEN} at input['password']"


def test_an_input_that_cannot_be_stored_is_refused_without_quoting_it():
    quiet = work(name="attempts.chatty", codec=Chatty(), redact=["password"])(lambda password: None)
    with pytest.raises(NotEncodable) as refusal:
        enqueue(quiet(password=SECRET))
    assert str(refusal.value) == HIDDEN_INPUT
    loud = work(name="attempts.loud", codec=Chatty())(lambda password: None)
    with pytest.raises(NotEncodable, match=f"what is .*{SECRET}"):
        enqueue(loud(password=SECRET))


def test_arguments_that_do_not_fit_are_refused_without_quoting_them(pay):
    dead = enqueue(pay(**secrets(amount=0)))
    drain(raises=False)
    for call in (
        lambda: enqueue(pay(**secrets()), secrets()),  # type: ignore[call-overload]
        lambda: enqueue("attempts.pay", SECRET),  # type: ignore[call-overload]
        lambda: enqueue("attempts.pay", {**secrets(), "amuont": 1}),
        lambda: pay(**secrets(), amuont=1),
        lambda: retry(dead.id, secrets(amuont=1)),
    ):
        with pytest.raises(TypeError) as refusal:
            call()
        assert SECRET not in str(refusal.value)


def test_units_that_cannot_be_queued_are_logged_without_quoting_them(caplog):
    @work(name="attempts.fetch", then="attempts.store")
    def fetch(ctx: Context) -> Any:
        ctx.output([["good", {"n": 1}], ["bad", SECRET]])
        return ctx.void()

    work(name="attempts.store", redact=["password"])(lambda n=0, password="": None)
    enqueue(fetch())
    drain()
    assert f"for attempts.store, 1 could not be queued: {HIDDEN}" in caplog.text
    assert SECRET not in caplog.text


def test_of_a_batch_the_one_input_can_be_hidden_or_what_is_in_it(page):
    def handler(items):
        return [item.input["password"] for item in items]

    for path in ("input", "input.password"):
        batch = batch_work(name="attempts.batch", redact=[path])(handler)
        handle = enqueue(batch({"password": SECRET, "n": 17}))
        shown = page(handle.id)
        assert SECRET not in shown
        assert ("&quot;n&quot;: 17" in shown) == (path == "input.password")
        drain()
        assert handle.result(timeout=0) == SECRET
    with pytest.raises(ImproperWork, match=r"redact= of 'attempts.batch' to name its inputs \(input\)"):
        batch_work(name="attempts.batch", redact=["password"])(handler)


def test_messages_of_assertions_are_redacted(pay):
    enqueue(pay(**secrets()))
    enqueue(dependency(["never"], [pay(**secrets())]))
    for claim in (
        lambda: assert_enqueued(add),
        lambda: assert_enqueued(pay, password="other " + SECRET),
        lambda: assert_not_enqueued(pay, password=SECRET),
    ):
        with pytest.raises(AssertionError) as raised:
            claim()
        assert SECRET not in str(raised.value)
    assert "attempts.pay" in str(raised.value)


@each_database
def test_no_trace_of_an_attempt_quotes_it(pay, page, configure, caplog, capsys):
    events: list[Any] = []
    configure(ON_EVENT=events.append, ON_ERROR=lambda *error: events.append(error))
    caplog.set_level(logging.DEBUG, logger="django_ayework")

    @work(name="attempts.parent")
    def parent(ctx: Context) -> Any:
        return ctx.queue([pay(**secrets(amount=0))])

    root = enqueue(parent())
    drain(raises=False)
    child = Work.objects.get(type="attempts.pay")
    for json in (True, False):
        call_command("ayework_explain", child.id, json=json)
    traces = (explain(child.id), root.state(), list(Attempt.objects.values()), pay(**secrets()))
    texts = [repr(events), *map(repr, traces), capsys.readouterr().out, caplog.text, page(child.id)]
    assert "ValueError: nothing to pay" in texts[0]
    assert [text for text in texts if SECRET in text] == []
