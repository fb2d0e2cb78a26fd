"""A handler that says nothing but a value: its end, and its log records."""

from __future__ import annotations

import itertools
import logging
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Aborted, work
from django_ayework.define.context import AbortReason
from django_ayework.define.plans import EMPTY, Plan
from django_ayework.define.types import WorkType
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.new_works import Lineage, build_new_work
from django_ayework.flow.outcomes import success_from, success_of_value
from django_ayework.logs import WorkContextFilter
from django_ayework.rules.codec import RichJSON
from django_ayework.rules.conditions import Contribution
from django_ayework.store.clock import clock
from django_ayework.worker.attempt import run
from django_ayework.worker.in_flight import Delivery

numbers = itertools.count()


class Shouting(RichJSON):
    """A codec of a project's own."""

    def encode(self, value: Any, path: str = "value") -> str:
        return super().encode(value, path).upper()


def claimed(work_type: WorkType[..., Any, Any], group: str | None = None) -> Delivery:
    """A work of a type, as a worker has it in hand; it is in no table."""
    row = build_new_work(work_type(), {}, Lineage(group), clock.now()).row
    delivery = Delivery(row._replace(status="running", attempt=1, delivery=1, worker="w"), 30.0)
    delivery.start()
    return delivery


@given(
    value=st.recursive(st.none() | st.integers() | st.text(st.characters(codec="utf-8")), st.lists),
    group=st.none() | st.just("g"),
    codec=st.none() | st.just(Shouting()),
)
def test_any_value_says_what_its_plan_says(value, group, codec):
    returned = work(name=f"attempts.value{next(numbers)}", codec=codec)(lambda: value)
    row = claimed(returned, group).row
    own = Contribution(value)
    plan = EMPTY if value is None else Plan(own, (own,))
    assert success_of_value(value, row, returned) == success_from(plan, row)


def test_a_shutdown_that_was_heeded_is_no_outcome():
    def stops() -> None:
        raise Aborted(str(AbortReason.SHUTDOWN), id="x")

    delivery = claimed(work(name="attempts.case")(stops))
    delivery.abort(AbortReason.SHUTDOWN)
    assert run(delivery, EngineServices()) == [(delivery, None)]


def test_its_log_records_tell_of_the_attempt(caplog):
    @work(name="attempts.case")
    def logs() -> None:
        logging.getLogger("t").warning("working")

    caplog.handler.addFilter(WorkContextFilter())
    delivery = claimed(logs)
    run(delivery, EngineServices())
    [record] = caplog.records
    assert (record.work_id, record.work_type, record.work_attempt) == (delivery.row.id, "attempts.case", 1)
