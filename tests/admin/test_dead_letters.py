"""The list of dead letters."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from django_ayework import enqueue
from django_ayework.models import DeadLetter
from django_ayework.rules.states import Reason
from django_ayework.testing import drain, time_travel
from django_ayework.testing.factories import DeadLetterFactory
from tests.admin.conftest import Page
from tests.admin.kit import address, die, ids_on
from tests.app.works import add, fail

pytestmark = pytest.mark.django_db
LIST = "deadletter_changelist"


def test_only_the_dead_are_listed(operator: Client) -> None:
    dead = die()
    enqueue(add(a=1, b=2))
    enqueue(fail(message="will be retried"))
    drain(raises=False)
    assert ids_on(operator.get(address(LIST))) == [dead.id]


def test_they_say_what_they_died_of(page: Page) -> None:
    die("no luck\nsecond line")
    listed = page(LIST)
    assert "exhausted" in listed
    assert "RuntimeError: no luck" in listed
    assert "second line" not in listed
    assert "3 / 3" in listed


def test_the_last_to_die_comes_first(operator: Client) -> None:
    long_lived = enqueue(fail(), delay=3600)
    early = die()
    time_travel(3600)
    for _ in range(4):
        drain(raises=False)
        time_travel(60)
    assert ids_on(operator.get(address(LIST))) == [long_lived.id, early.id]


def test_filters_by_reason_and_type(operator: Client) -> None:
    letters = {reason: DeadLetterFactory(reason=reason, type=f"shop.{reason}") for reason in Reason}
    for reason in Reason:
        assert ids_on(operator.get(address(LIST, reason=reason))) == [letters[reason].id]
        assert ids_on(operator.get(address(LIST, type=f"shop.{reason}"))) == [letters[reason].id]


def test_a_list_of_300_takes_four_queries(operator: Client, django_assert_num_queries: Any) -> None:
    DeadLetterFactory.create_batch(300)
    operator.get(address(LIST))
    with django_assert_num_queries(4):  # session, user, count, page
        assert len(ids_on(operator.get(address(LIST)))) == 100


def test_an_index_leads_to_the_dead(operator: Client) -> None:
    DeadLetterFactory()
    queryset = operator.get(address(LIST)).context["cl"].queryset
    if connection.vendor == "sqlite":
        assert "ayework_dead" in queryset.explain()


def test_a_letter_has_a_page(page: Page) -> None:
    dead = DeadLetter.objects.get(pk=die().pk)
    assert "RuntimeError: no luck" in page("deadletter_change", dead.pk)
    assert address("deadletter_retry", dead.pk) in page("deadletter_change", dead.pk)
