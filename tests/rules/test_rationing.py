"""How many works of each type a claim may take."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework.rules.controls import Controls, TypeControl, allocated, capped

NO_LIMITS = dict.fromkeys("abc", 1000)


def controlled(**types: TypeControl) -> Controls:
    return Controls(types)


def first_choices(controls: Controls, running: dict[str, int], caps: dict[str, int]) -> Counter[str]:
    """Let one work be claimed 3 000 times."""
    chance = random.Random(7)
    return Counter(type for _ in range(3000) for type in allocated(caps, 1, controls, running, chance))


@pytest.mark.parametrize(
    ("weights", "running", "expected"),
    [
        ((20, 20), (0, 0), (1 / 2, 1 / 2)),
        ((1, 10), (0, 0), (1 / 11, 10 / 11)),
        ((1, 10), (0, 2), (3 / 11, 8 / 11)),
        ((1, 5, 1), (0, 0, 99), (1 / 6, 5 / 6, 0)),
    ],
)
def test_chances_follow_weights_and_what_is_running(weights, running, expected):
    types = "abc"[: len(weights)]
    controls = Controls(
        {type: TypeControl(weight=weight) for type, weight in zip(types, weights, strict=True)}
    )
    chosen = first_choices(controls, dict(zip(types, running, strict=True)), dict.fromkeys(types, 1))
    for type, share in zip(types, expected, strict=True):
        assert chosen[type] / 3000 == pytest.approx(share, abs=3 * (share * (1 - share) / 3000) ** 0.5 + 1e-9)


def test_a_higher_priority_is_absolute_while_it_has_room():
    controls = controlled(a=TypeControl(priority=2, weight=1), b=TypeControl(weight=1000))
    assert allocated({"a": 3, "b": 9}, 5, controls, {}, random.Random(1)) == {"a": 3, "b": 2}
    assert first_choices(controls, {"a": 500}, NO_LIMITS) == {"a": 3000}


def test_in_the_long_run_claims_come_in_proportion_to_the_weights():
    controls = controlled(a=TypeControl(weight=30), b=TypeControl(weight=10))
    shares = allocated({"a": 1000, "b": 1000}, 400, controls, {}, random.Random(1))
    assert shares["a"] == pytest.approx(300, abs=10)


def test_caps_hold_limits_counted_over_the_fleet():
    controls = controlled(
        a=TypeControl(max_running=3), b=TypeControl(max_claimed=2), c=TypeControl(max_running=1)
    )
    assert capped(dict.fromkeys("abc", 8), controls, {"a": 1, "c": 4}) == {"a": 2, "b": 2, "c": 0}


controls = st.builds(
    TypeControl,
    priority=st.integers(-2, 2),
    weight=st.integers(1, 100),
    max_running=st.integers(0, 5),
    max_claimed=st.integers(0, 5),
)


@given(
    st.dictionaries(st.sampled_from("abcdef"), controls, min_size=1),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 8)),
    st.integers(1, 30),
    st.randoms(use_true_random=False),
)
def test_no_ration_exceeds_a_limit_and_no_room_is_left_unused(types, running, number, chance):
    given = Controls(types)
    caps = capped(dict.fromkeys(types, number), given, running)
    shares = allocated(caps, number, given, running, chance)
    assert sum(shares.values()) == min(number, sum(caps.values()))
    for type, share in shares.items():
        assert 0 < share <= caps[type]
        limit = types[type].max_running
        assert not limit or running.get(type, 0) + share <= limit
        assert not types[type].max_claimed or share <= types[type].max_claimed
