"""What groups gain in one transaction: each its own, whatever else happens in it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_ayework import enqueue, enqueue_many
from django_ayework.flow.effects import Effects
from django_ayework.flow.unit_of_work import ContributionFailed, GroupChanges
from django_ayework.models import Group
from django_ayework.rules.conditions import Contribution, GroupValue, fold
from django_ayework.store.clock import clock
from django_ayework.store.groups import GroupRow, find_group, insert_groups
from tests.app.works import add
from tests.races.rivals import claim_all, succeed

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["b", "c", "a"]])
def test_every_group_whose_members_end_counts_them(names):
    books, effects = GroupChanges(clock.now()), Effects(clock.now())
    insert_groups(GroupRow(name, open=place + 2, total=5) for place, name in enumerate("abc"))
    for name in names:
        books.member_ended(name, dead=name == "b")
        books.member_ended(name, dead=False)
    books.close(effects)
    groups = {name: find_group(name) for name in "abc"}
    assert {name: (row.open, row.dead) for name, row in groups.items() if name in names} == {
        name: {"a": (0, 0), "b": (1, 1), "c": (2, 0)}[name] for name in names
    }
    assert all(groups[name].open == "abc".index(name) + 2 for name in set("abc").difference(names))
    assert [name for name in "abc" if groups[name].done_at] == ["a"]
    assert [id for id in effects.ended if id in groups] == ["a"]


def test_a_group_that_is_gone_has_nothing_to_gain():
    books, effects = GroupChanges(clock.now()), Effects(clock.now())
    books.member_ended("gone", dead=False)
    books.close(effects)
    assert effects.ended == []


def added(existing: str | None) -> str:
    return f"{existing or ''}+"


words = st.builds(
    Contribution,
    st.sampled_from(["a", "b"]),
    final=st.sampled_from([False, False, True]),
    append=st.sampled_from([None, None, added]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None)
@given(transactions=st.lists(st.lists(words, max_size=5), max_size=3))
def test_the_value_is_what_folding_every_contribution_gives(transactions):
    Group.objects.all().delete()
    insert_groups([GroupRow("g", open=9)])
    expected = GroupValue()
    for said in transactions:
        books = GroupChanges(clock.now())
        for word in said:
            books.contributed("g", "w", [word])
        books.close(Effects(clock.now()))
        expected = fold(expected, said)
        group = find_group("g")
        assert (group.value, group.final) == (expected.value, expected.final)


def test_a_function_that_raises_is_blamed_on_the_work_that_brought_it():
    insert_groups([GroupRow("g", open=9)])
    books = GroupChanges(clock.now())
    books.contributed("g", "w1", [Contribution("a")])
    books.contributed("g", "w2", [Contribution(None, append=lambda existing: 1 / 0)])
    books.contributed("g", "w3", [Contribution("b")])
    with pytest.raises(ContributionFailed) as failure:
        books.close(Effects(clock.now()))
    assert failure.value.work_id == "w2"


def test_members_that_end_together_are_counted_each():
    """Of two groups and of none, in one transaction."""
    enqueue_many([add(a=1, b=n) for n in range(5)], together=True)
    enqueue_many([add(a=2, b=n) for n in range(3)], together=True)
    enqueue(add(a=3, b=0))
    rows = list(claim_all().values())
    held = {row.group_id: row for row in rows if row.group_id}  # the last of each
    succeed(*(row for row in rows if row not in held.values()))
    assert sorted(Group.objects.values_list("total", "open", "dead")) == [(3, 1, 0), (5, 1, 0)]
    succeed(*held.values())
    assert sorted(Group.objects.values_list("total", "open", "dead")) == [(3, 0, 0), (5, 0, 0)]
