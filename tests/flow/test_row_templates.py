"""Row templates: what is kept for the works of a type never reaches a work that it does not fit."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_ayework import Retry, enqueue
from django_ayework.flow.notify import due_works
from django_ayework.models import Work
from django_ayework.rules.notifications import Due
from django_ayework.testing import now
from tests.app.works import add
from tests.flow.conftest import Configure


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
def test_other_settings_make_other_templates(configure: Configure) -> None:
    enqueue(add(a=1, b=1))
    configure(RETRY=Retry(attempts=9), CODEC=Listing())
    request = add(a=1, b=1)
    enqueue(request)
    stored = Work.objects.get(id=request.id)
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
    due_works.subscribe(told.append)
    try:
        with transaction.atomic() if inside else nullcontext():
            enqueue(add(a=1, b=1))
            assert bool(told) is not inside
    finally:
        due_works.unsubscribe(told.append)
    assert told == [Due(frozenset({("default", add.name)}))]
