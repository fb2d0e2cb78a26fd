"""Edit and retry: a form from the handler's signature, the difference, the retry with another input."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any, Literal
from uuid import UUID

import pytest
from django.contrib.auth import get_user_model

from django_ayework import Context, Retry, cancel, delete_chains, dependency, enqueue, get_handle, retry, work
from django_ayework.flow.maintenance import prune
from django_ayework.flow.retry import retry_edited
from django_ayework.models import InputRevision, Work
from django_ayework.rules.codec import decode
from django_ayework.testing import drain, time_travel
from django_ayework.testing.factories import WorkFactory
from tests.admin.kit import address, assert_hides, assert_shows, logged, told
from tests.app.works import add
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]


class Size(StrEnum):
    SMALL = "s"
    LARGE = "l"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@work(name="edit.order", retry=Retry(attempts=1))
def order(
    ctx: Context,
    number: int,
    name: str,
    weight: float = 1.5,
    paid: bool = False,
    at: datetime | None = None,
    day: date | None = None,
    price: Decimal = Decimal(1),
    key: UUID | None = None,
    how: Literal["post", "van"] = "post",
    size: Size = Size.SMALL,
    level: Level = Level.LOW,
    items: list[int] | None = None,
    **more: Any,
) -> Any:
    if number < 0:
        raise ValueError(f"no order {number}")
    return ctx.result([number, name])


@work(name="edit.secret", retry=Retry(attempts=1), redact=["pin", "card.number"])
def secret(pin: str, card: dict[str, Any], amount: int) -> str:
    if amount == 0:
        raise ValueError("nothing")
    return f"{pin} {card['number']} {amount}"


def dead(request, **options):
    """Queue a work and run it to death."""
    handle = enqueue(request, **options)
    drain(raises=False)
    assert Work.objects.get(id=handle.id).status == "dead"
    return handle


def edit_url(id):
    return address("work_edit", id)


def form_of(client, id):
    """Open the form; return what it would send as it is."""
    response = client.get(edit_url(id))
    assert response.status_code == 200, response
    form = response.context["form"]
    filled = {form.add_prefix(name): form[name].value() or "" for name in form.fields}
    return {**filled, "token": response.context["token"]}


def send(client, id, data, **changes):
    return client.post(edit_url(id), {**data, **{f"input-{name}": value for name, value in changes.items()}})


def confirm(client, id, data, **changes):
    return send(client, id, {**data, "confirm": "1"}, **changes)


def difference(response):
    changes = response.context["changes"]
    assert changes is not None, response.context["form"].errors
    return {change.name: (change.old, change.new) for change in changes}


def errors(response):
    return {name: list(found) for name, found in response.context["form"].errors.items()}


def input_of(handle):
    return json.loads(Work.objects.get(id=handle.id).input)


@each_database
@pytest.mark.parametrize("username", ["operator", 4155550100], ids=["a text", "a number"])
def test_a_bad_argument_is_corrected_and_the_work_runs_with_the_new_one(operator, monkeypatch, username):
    monkeypatch.setattr(get_user_model(), "get_username", lambda self: username)
    handle = dead(order(number=-7, name="tea"))
    assert edit_url(handle.id) in operator.get(address("work_change", handle.id)).content.decode()
    data = form_of(operator, handle.id)
    assert difference(send(operator, handle.id, data, number="7")) == {"number": ("-7", "7")}
    assert Work.objects.get(id=handle.id).status == "dead"
    done = confirm(operator, handle.id, data, number="7")
    assert (done.status_code, done.headers["Location"]) == (302, address("work_change", handle.id))
    assert input_of(handle) == {"number": 7, "name": "tea"}
    drain()
    assert handle.result() == [7, "tea"]
    revision = InputRevision.objects.get()
    assert (revision.work_id, json.loads(revision.input)) == (handle.id, {"number": -7, "name": "tea"})
    assert revision.replaced_by == str(username)
    assert logged() == ["Retried with another input. It was dead. number: -7 → 7"]


HALF = "half a pair \ud800"


@each_database
def test_texts_that_no_page_can_have_are_edited_as_json(operator):
    handle = dead(order(number=-7, name=HALF, items=[HALF], more=HALF))
    data = form_of(operator, handle.id)
    assert data["input-name"] == json.dumps(HALF)
    assert difference(send(operator, handle.id, data, number="7")) == {"number": ("-7", "7")}
    confirm(operator, handle.id, data, number="7")
    assert input_of(handle) == {"number": 7, "name": HALF, "items": [HALF], "more": HALF}
    Work.objects.filter(id=handle.id).update(status="dead", input=json.dumps({HALF: 1}))
    assert form_of(operator, handle.id)


MORNING, NIGHT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC), datetime(2027, 1, 2, 1, 4, 5, tzinfo=UTC)
#: Of each kind of value: the field, a value, its text in the form, a text that is typed, and what it gives.
KINDS = [
    ("number", -1, "-1", " 12 ", 12),
    ("name", "two\nlines", "two\nlines", "", ""),
    ("weight", 0.1, "0.1", "2e3", 2000.0),
    ("paid", True, "true", "false", False),
    ("at", MORNING, "2026-03-01T09:30:00+00:00", "2027-01-02T03:04:05+02:00", NIGHT),
    ("day", date(2026, 3, 1), "2026-03-01", "2027-01-02", date(2027, 1, 2)),
    ("price", Decimal("4.50"), "4.50", "10.00", Decimal("10.00")),
    ("key", UUID(int=5), str(UUID(int=5)), str(UUID(int=9)), UUID(int=9)),
    ("how", "van", "van", "post", "post"),
    ("size", "l", "l", "s", "s"),
    ("level", 2, "2", "1", 1),
    ("items", [1, 2], "[\n  1,\n  2\n]", "[3]", [3]),
    (
        "more",
        {"gift": {"wrap": True}},
        '{\n  "gift": {\n    "wrap": true\n  }\n}',
        '{"note": 1}',
        {"note": 1},
    ),
]
STORED = {name: value for name, value, *_ in KINDS if name != "more"} | {"gift": {"wrap": True}}


def test_a_form_that_is_sent_as_it_is_changes_nothing(operator):
    handle = dead(order(**STORED))
    data = form_of(operator, handle.id)
    assert data == {f"input-{name}": text for name, _, text, *_ in KINDS} | {"token": data["token"]}
    sent = {name: value.replace("\n", "\r\n") for name, value in data.items()}
    response = send(operator, handle.id, sent)
    assert difference(response) == {}
    assert "as it was" in response.content.decode()
    before = Work.objects.get(id=handle.id).input
    confirm(operator, handle.id, sent)
    assert Work.objects.get(id=handle.id).input == before


def test_each_kind_of_value_is_read(operator):
    handle, optional = dead(order(**STORED)), dead(order(**STORED))
    confirm(
        operator, handle.id, form_of(operator, handle.id), **{name: typed for name, *_, typed, _ in KINDS}
    )
    read = {name: value for name, *_, value in KINDS if name != "more"} | {"note": 1}
    assert decode(Work.objects.get(id=handle.id).input) == read
    confirm(operator, optional.id, form_of(operator, optional.id), at="", items="")
    assert decode(Work.objects.get(id=optional.id).input) == STORED | {"at": None, "items": None}


#: What is typed in a field, and how it is refused.
WRONG = [
    ("number", "1.5", "expected a whole number, got: '1.5'"),
    ("weight", "much", "expected a number, got: 'much'"),
    ("paid", "perhaps", "expected true or false, got: 'perhaps'"),
    ("at", "soon", "expected a moment such as 2026-03-01T09:30:00+00:00, got: 'soon'"),
    ("day", "2026-02-30", "expected a day such as 2026-03-01, got: '2026-02-30'"),
    ("price", "4,50", "expected a decimal number, got: '4,50'"),
    ("key", "5", "expected a UUID, got: '5'"),
    ("how", "<b>", "expected one of post, van, got: '<b>'"),
    ("size", "xl", "expected one of s, l, got: 'xl'"),
    ("level", "3", "expected one of 1, 2, got: '3'"),
    ("items", "[1", "expected JSON, got: '[1' (Expecting ',' delimiter: line 1 column 3 (char 2))"),
]


def test_wrong_values_are_refused_at_their_fields_and_nothing_is_lost(operator):
    handle = dead(order(**STORED))
    data = form_of(operator, handle.id)
    response = confirm(operator, handle.id, data, name="typed", **{name: text for name, text, _ in WRONG})
    assert errors(response) == {name: [error] for name, _, error in WRONG}
    assert "typed" in response.content.decode()
    assert "<b>" not in response.content.decode()
    for name, text, error in (
        ("number", "", "expected a whole number, got: ''"),
        ("more", "[1]", "expected a JSON object, got: [1]."),
    ):
        assert errors(confirm(operator, handle.id, data, **{name: text})) == {name: [error]}
    assert Work.objects.get(id=handle.id).status == "dead"
    assert not InputRevision.objects.exists()


def test_redacted_inputs_are_never_filled_in_and_stay_if_left_empty(operator):
    handle = dead(secret(pin="PIN-1234", card={"number": "card-4111", "holder": "Ann"}, amount=0))
    assert_hides(operator.get(edit_url(handle.id)).content.decode(), "PIN-1234", "card-4111")
    data = form_of(operator, handle.id)
    wrong = send(operator, handle.id, data, amount="x", pin="PIN-9876", card="{card-4222").content.decode()
    assert_hides(wrong, "PIN-9876", "card-4222")
    assert difference(send(operator, handle.id, data, amount="5")) == {"amount": ("0", "5")}
    asked = send(operator, handle.id, data, amount="5", pin="PIN-9876")
    assert difference(asked) == {"amount": ("0", "5"), "pin": ("••••", "••••")}
    confirm(operator, handle.id, data, amount="5", pin="PIN-9876")
    drain()
    assert handle.result() == "PIN-9876 card-4111 5"
    [message] = logged()
    assert_hides(message, "PIN-1234", "PIN-9876")


def test_a_success_runs_again_with_another_input_as_a_new_work(operator):
    handle = enqueue(add(a=1, b=2))
    drain()
    data = form_of(operator, handle.id)
    assert "Run again with this input" in send(operator, handle.id, data, b="5").content.decode()
    done = confirm(operator, handle.id, data, b="5")
    new = Work.objects.get(parent_id=handle.id)
    assert done.headers["Location"] == address("work_change", new.id)
    drain()
    assert (get_handle(new.id).result(), input_of(handle)) == (6, {"a": 1, "b": 2})
    assert not InputRevision.objects.exists()


def test_works_of_unknown_types_and_gates_are_refused_in_a_sentence(operator):
    unknown = WorkFactory(type="gone.forever", status="dead")
    gate = enqueue(dependency(on=["x"], queue=[add(a=1, b=1)]))
    cancel(gate.id)
    for id, sentence in ((unknown.id, "no work is named 'gone.forever'"), (gate.id, "is a gate")):
        for response in (operator.get(edit_url(id)), operator.post(edit_url(id), {"confirm": "1"})):
            assert response.status_code == 302
        assert sentence in told(operator.get(edit_url(id)))[-1]
        assert edit_url(id) not in operator.get(address("work_change", id)).content.decode()
    running = WorkFactory(status="running")
    assert "is running now" in told(operator.get(edit_url(running.id)))[-1]
    assert operator.get(edit_url("missing")).status_code == 404


def test_a_work_that_was_retried_or_edited_meanwhile_is_left_alone_and_the_entries_stay(operator):
    handle = dead(order(number=-7, name="tea"))
    data = form_of(operator, handle.id)
    retry(handle.id)
    for act in (send, confirm):
        response = act(operator, handle.id, data, number="31337")
        assert response.status_code == 200
        assert_shows(response.content.decode(), "is pending now; nothing was changed", 'value="31337"')
    drain(raises=False)
    retry(handle.id, {"number": -8, "name": "tea"})
    drain(raises=False)
    response = confirm(operator, handle.id, data, number="31337")
    assert "was retried or edited since" in response.content.decode()
    assert input_of(handle)["number"] == -8


def test_a_work_that_is_retried_between_the_check_and_the_retry_is_left_alone(operator, monkeypatch):
    handle = dead(order(number=-7, name="tea"))
    data = form_of(operator, handle.id)

    def retried_first(*args):
        """Let another user retry the work, which dies again."""
        monkeypatch.undo()
        retry(handle.id)
        drain(raises=False)
        return retry_edited(*args)

    monkeypatch.setattr("django_ayework.admin.edit.retry_edited", retried_first)
    response = confirm(operator, handle.id, data, number="31337")
    assert_shows(response.content.decode(), "it has been changed since; nothing was retried", 'value="31337"')
    assert (input_of(handle)["number"], handle.state().status) == (-7, "dead")


@pytest.mark.parametrize(
    ("permissions", "allowed"),
    [
        (["view_work", "edit_input_work", "retry_work"], True),
        (["view_work", "edit_input_work"], False),
        (["view_work", "retry_work"], False),
        (["edit_input_work", "retry_work"], False),
        (["change_work", "delete_work", "bulk_work", "cancel_work"], False),
    ],
)
def test_to_edit_takes_its_permission_and_that_to_retry(client_with, operator, permissions, allowed):
    handle = dead(order(number=-7, name="tea"))
    data, client = form_of(operator, handle.id), client_with(*permissions)
    if "view_work" in permissions:
        page = client.get(address("work_change", handle.id)).content.decode()
        assert (edit_url(handle.id) in page) is allowed
    assert client.get(edit_url(handle.id)).status_code == (200 if allowed else 403)
    response = confirm(client, handle.id, data, number="7")
    assert response.status_code == (302 if allowed else 403)
    assert input_of(handle)["number"] == (7 if allowed else -7)


@each_database
def test_former_inputs_go_with_their_works():
    kept, gone, old = (dead(order(number=-1, name="x")) for _ in range(3))
    for handle in (kept, gone, old):
        retry(handle.id, {"number": -2, "name": "x"})
    drain(raises=False)
    delete_chains(gone.id)
    assert set(InputRevision.objects.values_list("work_id", flat=True)) == {kept.id, old.id}
    retry(old.id)
    cancel(old.id)
    time_travel(2 * 86400)
    prune()
    assert set(InputRevision.objects.values_list("work_id", flat=True)) == {kept.id}


def test_inputs_that_cannot_be_read_are_entered_anew_and_arguments_that_are_gone_are_left_out(operator):
    broken = WorkFactory(type="edit.order", status="dead", input="{broken <b>")
    data = form_of(operator, broken.id)
    page = operator.get(edit_url(broken.id)).content.decode()
    assert_shows(page, "cannot be read", "{broken &lt;b&gt;")
    assert set(errors(send(operator, broken.id, data))) == {"number"}
    confirm(operator, broken.id, data, number="3", name="y")
    drain()
    assert get_handle(broken.id).result() == [3, "y"]
    older = WorkFactory(type="shop.add", status="dead", input='{"a": 1, "b": 2, "c": 3}')
    data = form_of(operator, older.id)
    assert difference(send(operator, older.id, data)) == {"c": ("3", "–")}
    confirm(operator, older.id, data)
    assert input_of(older) == {"a": 1, "b": 2}
