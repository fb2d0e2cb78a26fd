"""Counting in a group: by one statement, or under its lock."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_ayework.models import Group
from django_ayework.store.clock import clock
from django_ayework.store.groups import GroupRow, count_in_group, find_group, insert_groups

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("version")]
counts = st.integers(min_value=-3, max_value=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    row=st.builds(
        GroupRow,
        id=st.just("g"),
        open=st.integers(0, 4),
        total=st.just(9),
        dead=st.just(1),
        done_at=st.none(),
        value=st.sampled_from([None, "1"]),
        final=st.booleans(),
    ),
    was_done=st.booleans(),
    gains=st.tuples(counts, counts, counts),
    word=st.sampled_from([(None, False), ("null", False), ("2", True)]),
)
def test_the_row_becomes_what_the_rules_say(row, was_done, gains, word):
    Group.objects.all().delete()
    now = clock.now()
    row = row._replace(done_at=now - timedelta(hours=1) if was_done else None)
    insert_groups([row, row._replace(id="other")])
    becomes = row.adding(*gains, now).saying(*word)
    assert count_in_group("g", *gains, now, *word) == becomes
    assert find_group("g") == becomes
    assert find_group("other") == row._replace(id="other")


def test_a_group_is_done_when_its_last_member_ends_and_not_before_or_again():
    now = clock.now()
    assert GroupRow("g", open=2).adding(-1, 0, 0, now).done_at is None
    assert GroupRow("g", open=1).adding(-1, 0, 0, now).done_at == now
    earlier = now - timedelta(hours=1)
    assert GroupRow("g", open=0, done_at=earlier).adding(0, -1, 0, now).done_at == earlier
    assert GroupRow("g", open=0, done_at=earlier).adding(1, 1, 0, now).done_at is None


def test_a_value_replaces_the_one_before_until_one_is_final():
    row = GroupRow("g", value="1")
    assert row.saying("2", final=False) == row._replace(value="2")
    assert row.saying("2", final=True) == row._replace(value="2", final=True)
    assert row.saying("2", final=True).saying("3", final=False) == row._replace(value="2", final=True)
    assert row.saying(None, final=False) == row


def test_a_group_that_is_not_there_gains_nothing():
    assert count_in_group("nowhere", -1, 0, 0, clock.now()) is None
    assert Group.objects.count() == 0
