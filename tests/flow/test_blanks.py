"""Works that are queued with their input alone: what is filled in is the row that would be made otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_ayework import BatchItem, Retry, batch_work, dependency, enqueue, registry, work
from django_ayework.flow.enqueue import new_work_of
from django_ayework.flow.gates import encoded_input
from django_ayework.flow.notify import due_works
from django_ayework.flow.row_templates import blank_of
from django_ayework.models import Work
from django_ayework.rules.notifications import Due
from django_ayework.testing import now
from tests.app.works import add
from tests.flow.conftest import Configure

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "placed": {"queue": "mail", "priority": 7},
    "patient": {"retry": Retry(attempts=9), "timeout": 5, "lease": 60},
    "secret": {"redact": ["a"]},
    "ordered": {"order": "unit", "weight": 3, "max_running": 2},
    "alone": {"atomic": True, "options": lambda a: {}},
}
#: More is to be said of their rows than what a blank has.
SPECIAL: dict[str, dict[str, Any]] = {
    "expiring": {"expires": 60},
    "labelled": {"fairness": "tenant"},
    "direct": {"skip_queue": True},
    "computed": {"options": lambda a: {"priority": a}},
}


@pytest.fixture
def declared(request: Any) -> Iterator[Any]:
    """A type with these options."""
    name = "t.blanks.declared"
    yield work(name=name, **request.param)(lambda a: a)
    registry.unregister(name)


@pytest.mark.parametrize("declared", KINDS.values(), ids=KINDS, indirect=True)
def test_a_row_that_is_filled_in_is_the_one_that_would_be_made(declared: Any) -> None:
    for _ in range(2):
        request = declared(a=1)
        made = new_work_of(request, {}, on_commit=False).row
        blank = blank_of(request)
        assert blank is not None
        assert blank.row(request.id, encoded_input(request), made.queued_at) == made


@pytest.mark.parametrize("declared", SPECIAL.values(), ids=SPECIAL, indirect=True)
def test_a_work_of_which_more_is_to_be_said_is_made(declared: Any) -> None:
    assert blank_of(declared(a=1)) is None


def test_gates_are_made_and_works_of_batches_filled_in() -> None:
    @batch_work(name="t.blanks.batch", size=2)
    def together(items: list[BatchItem[int]]) -> list[int]:
        return [item.input for item in items]

    try:
        assert blank_of(dependency(on=["a"], queue=[add(a=1, b=1)])) is None
        request = together(3)
        blank, made = blank_of(request), new_work_of(request, {}, on_commit=False).row
        assert blank is not None
        assert blank.row(request.id, encoded_input(request), made.queued_at) == made
    finally:
        registry.unregister("t.blanks.batch")


@pytest.mark.django_db
def test_options_of_an_enqueue_are_heeded_after_one_without(drain: Any) -> None:
    enqueue(add(a=1, b=1))
    enqueue(add(a=1, b=1), priority=3, delay=timedelta(hours=1))
    enqueue(add(a=1, b=1))
    rows = Work.objects.order_by("id").values_list("priority", "status")
    assert [*rows] == [(0, "pending"), (3, "scheduled"), (0, "pending")]
    assert drain().ran == 2


@pytest.mark.django_db
def test_each_is_queued_and_due_at_its_own_moment(time_travel: Any) -> None:
    enqueue(add(a=1, b=1))
    time_travel(3600)
    enqueue(add(a=1, b=1))
    first, second = Work.objects.order_by("id")
    assert first.queued_at == first.run_at < second.queued_at == second.run_at
    assert abs(second.run_at - now()) < timedelta(minutes=1)


@pytest.mark.django_db
def test_other_settings_make_other_blanks(configure: Configure) -> None:
    enqueue(add(a=1, b=1))
    configure(RETRY=Retry(attempts=9), CODEC=Listing())
    request = add(a=1, b=1)
    made = new_work_of(request, {}, on_commit=False).row
    enqueue(request)
    stored = Work.objects.get(id=request.id)
    assert (stored.options, stored.input) == (made.options, made.input)
    assert '"retry":[9,' in stored.options
    assert stored.input == "a:1,b:1,"


class Listing:
    """A codec that can be told from the usual one."""

    def encode(self, value: Any) -> str:
        return "".join(f"{name}:{number}," for name, number in value.items())

    def decode(self, text: str) -> Any:
        raise NotImplementedError


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("inside", [False, True], ids=["by itself", "in a transaction"])
def test_workers_are_told_once_it_is_committed(inside: bool) -> None:
    told: list[Due] = []
    listener = told.append
    due_works.subscribe(listener)
    try:
        with transaction.atomic() if inside else nullcontext():
            enqueue(add(a=1, b=1))
            assert bool(told) is not inside
    finally:
        due_works.unsubscribe(listener)
    assert told == [Due(frozenset({("default", add.name)}))]


def test_no_id_is_spent_on_a_blank(configure: Configure) -> None:
    made: list[str] = []

    def counted() -> str:
        made.append(f"id-{len(made)}")
        return made[-1]

    configure(ID=counted)
    try:
        request = work(name="t.blanks.counted")(lambda: None)()
        assert blank_of(request) is not None
    finally:
        registry.unregister("t.blanks.counted")
    assert made == [request.id]
