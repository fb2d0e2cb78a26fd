"""Waiters and their edges, as they are born."""

from __future__ import annotations

import pytest

from django_ayework.models import Edge
from django_ayework.store.dependencies import WORTH_COPYING, WaiterRow, Watch, insert_waiters, watchers_of
from tests.store.gates import watch

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]


@pytest.mark.parametrize("number", [WORTH_COPYING - 1, WORTH_COPYING, 3 * WORTH_COPYING])
def test_edges_keep_their_order_and_what_they_watch_however_many_there_are(number):
    watches = [Watch(f"w\\{place}\tä", place % 3 == 0, "success" * (place % 2)) for place in range(number)]
    row = WaiterRow("gate", '"all-success"', "dead", number, number // 2, 0, False)
    insert_waiters([row], {"gate": watches})
    stored = Edge.objects.filter(waiter_id="gate").order_by("position")
    assert [Watch(*edge) for edge in stored.values_list("watched_id", "chain", "outcome")] == watches
    assert [edge.position for edge in stored] == list(range(number))


def test_the_watchers_of_many_works_are_found():
    watch("gate", *(f"w{number}" for number in range(600)))
    watch("other", "w599", "elsewhere")
    assert watchers_of(f"w{number}" for number in range(600)) == {"gate", "other"}
    assert watchers_of(["nowhere"]) == set()
