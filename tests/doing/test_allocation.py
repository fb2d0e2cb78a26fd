"""How a turn of claiming is divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import batch_work, doers, work
from django_ayework.conf import doer_of
from django_ayework.define.options import check_doer
from django_ayework.errors import InvalidOption
from django_ayework.rules.controls import Controls
from django_ayework.store.lanes import Lane
from django_ayework.worker.dispatch import Capacity, ClaimGroup, claim_groups_of
from tests.doing.works import note, note_all

ONE, OTHER = doers.balanced(1), doers.balanced(2)


def share(number: int, doer: object = None) -> ClaimGroup:
    return ClaimGroup(f"q{number}", ("t",), doer=doer)  # type: ignore[arg-type]


@given(st.integers(0, 50), st.lists(st.sampled_from([None, ONE, OTHER]), max_size=6), st.integers(0, 50))
def test_no_source_gives_more_than_it_has_and_all_it_has_to_those_who_take_it(slots, sources, room):
    shares = [share(number, doer) for number, doer in enumerate(sources)]
    places = Capacity(slots, lambda doer: room)
    taken = {id(doer): 0 for doer in (None, ONE, OTHER)}
    for one in shares:
        offered = places.of(one, shares)
        places.take(one, offered)
        taken[id(one.doer)] += offered
    for doer in set(sources):
        assert taken[id(doer)] == (slots if doer is None else room)


def test_each_share_is_offered_as_much_as_its_rivals_and_what_an_emptied_one_leaves():
    shares = [share(0), share(1), share(2, ONE)]
    places = Capacity(9, lambda doer: 4)
    assert [places.of(one, shares) for one in shares] == [5, 5, 4]
    places.take(share(0), 1)
    assert places.of(share(1), [share(1)]) == 8


def test_types_with_different_doers_are_served_apart():
    for name, options in (("a", {"doer": ONE}), ("b", {"doer": ONE}), ("c", {"doer": OTHER}), ("d", {})):
        work(name=f"doing.{name}", **options)(note)
    shares = claim_groups_of([Lane("q", f"doing.{name}") for name in "abcd"], Controls())
    expected = [(("doing.a", "doing.b"), ONE), (("doing.c",), OTHER), (("doing.d",), None)]
    assert [(one.types, one.doer) for one in shares] == expected
    assert shares[0].without(["doing.a"]) == ClaimGroup("q", ("doing.b",), doer=ONE)
    assert shares[0].without(["doing.a"]).doer is ONE
    assert shares[1].without(["doing.c"]) is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (8, "which has no available, submit, drained"),
        (doers.Doer, "which is a class"),
        ("x.y", "which has no"),
    ],
)
def test_what_is_no_doer_is_refused(value, why):
    with pytest.raises(InvalidOption, match=f"expected doer to be a doer, such as .*{why}"):
        check_doer(value, "doer")
    with pytest.raises(InvalidOption, match=why):
        work(name="doing.e", doer=value)(note)


def test_the_doer_of_the_settings_is_an_object_or_its_path_and_not_for_batches(settings):
    several = batch_work(name="doing.f")(note_all)
    own = batch_work(name="doing.g", doer=OTHER)(note_all)
    single = work(name="doing.h")(note)
    for doer in (ONE, f"{__name__}.ONE"):
        settings.AYEWORK = {"DOER": doer}
        assert [doer_of(kind) for kind in (several, own, single)] == [None, OTHER, ONE]
