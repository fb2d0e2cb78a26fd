"""A handler that says nothing but a value ends as one with the plan of that value."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from django_ayework import work
from django_ayework.define.plans import EMPTY, Plan
from django_ayework.flow.new_works import Lineage, build_new_work
from django_ayework.flow.outcomes import success_from, success_of_value
from django_ayework.rules.codec import RichJSON
from django_ayework.rules.conditions import Contribution
from django_ayework.store.database import clock


class Shouting(RichJSON):
    """A codec of a project's own."""

    def encode(self, value: Any, path: str = "value") -> str:
        return super().encode(value, path).upper()


@work(name="attempts.value")
def returned() -> None: ...


@work(name="attempts.value_shouted", codec=Shouting())
def shouted() -> None: ...


@settings(max_examples=40)
@given(
    value=st.recursive(st.none() | st.integers() | st.text(st.characters(codec="utf-8")), st.lists),
    group=st.none() | st.just("g"),
    type_=st.sampled_from([returned, shouted]),
)
def test_any_value_says_what_its_plan_says(value, group, type_):
    row = build_new_work(type_(), {}, Lineage(group), clock.now()).row._replace(attempt=1, delivery=1)
    own = Contribution(value)
    plan = EMPTY if value is None else Plan(own, (own,))
    assert success_of_value(value, row, type_) == success_from(plan, row)
