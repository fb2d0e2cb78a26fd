"""A handler that says nothing but a value ends as one with the plan of that value."""

import pytest

from django_ayework import work
from django_ayework.define.plans import EMPTY, Plan
from django_ayework.flow.new_works import Lineage, build_new_work
from django_ayework.flow.outcomes import success_from, success_of_value
from django_ayework.rules.codec import RichJSON
from django_ayework.rules.conditions import Contribution
from django_ayework.store.database import clock


class Shouting(RichJSON):
    """A codec of a project's own."""

    def encode(self, value, path="value") -> str:
        return super().encode(value, path).upper()


@pytest.mark.parametrize("value", [None, 0, 7, "", "text", "\x00", [], [None, ["a", [1]]]], ids=repr)
@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("codec", [RichJSON(), Shouting()], ids=["default", "own"])
def test_any_value_says_what_its_plan_says(value, group, codec):
    type_ = work(name="attempts.value", codec=codec)(lambda: None)
    row = build_new_work(type_(), {}, Lineage(group), clock.now()).row._replace(attempt=1, delivery=1)
    own = Contribution(value)
    plan = EMPTY if value is None else Plan(own, (own,))
    assert success_of_value(value, row, type_) == success_from(plan, row)
