"""An attempt whose handler is shown nothing ends as it would the whole way, and takes less to get there."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ayework import Abort, Aborted, Context, Defer, Reschedule, Retry, signals, work
from django_ayework.define.context import AbortReason
from django_ayework.define.instructions import EMPTY, Plan
from django_ayework.define.types import WorkType
from django_ayework.flow.new_works import Lineage, build_new_work
from django_ayework.flow.outcomes import success_from, success_of_value
from django_ayework.flow.services import EngineServices
from django_ayework.logs import WorkContextFilter
from django_ayework.rules.codec import RichJSON
from django_ayework.rules.conditions import Contribution
from django_ayework.rules.states import Reason
from django_ayework.store.clock import clock
from django_ayework.worker import attempt
from django_ayework.worker.attempt import run, run_shortest
from django_ayework.worker.delivery import Delivery
from tests.app.works import add

numbers = itertools.count()


class Shouting(RichJSON):
    """A codec of a project's own."""

    def encode(self, value: Any, path: str = "value") -> str:
        return super().encode(value, path).upper()


def claimed(work_type: WorkType[..., Any, Any], group: str | None = None, **changes: Any) -> Delivery:
    """A work of a type, as a worker has it in hand; it is in no table."""
    row = build_new_work(work_type(), {}, Lineage(group), clock.now()).row
    return Delivery(row._replace(status="running", attempt=1, delivery=1, worker="w", **changes), 30.0)


def coroutine() -> Any:
    async def nobody_awaits() -> None: ...

    return nobody_awaits()


def raising(error: BaseException) -> Callable[[], Any]:
    def handler() -> Any:
        raise error

    return handler


def another_context_says() -> Any:
    contexts: list[Context] = []

    @work(name="t.short.other")
    def other(ctx: Context) -> None:
        contexts.append(ctx)

    run(claimed(other), EngineServices())
    return contexts[0].result(1)


ENDS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "a value": lambda: {"sum": (1, {2})},
    "what cannot be stored": lambda: object(),
    "what is too large": lambda: "x" * 2_000_000,
    "half a surrogate pair": lambda: "\ud800",
    "a work": lambda: add(a=1, b=2),
    "a coroutine": coroutine,
    "an instruction of another": another_context_says,
    "an error": raising(ValueError("no")),
    "an exit": raising(SystemExit(3)),
    "a cancelled task": raising(asyncio.CancelledError()),
    "a deferral": raising(Defer(delay=5)),
    "an abort": raising(Abort("no more")),
    "a reschedule": raising(Reschedule(delay=60)),
    "an end that nobody asked for": raising(Aborted("cancelled", id="x")),
}


@pytest.fixture(params=["alone", "in a group"])
def group(request: pytest.FixtureRequest) -> str | None:
    return "g" if request.param == "in a group" else None


@pytest.fixture
def short_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if an attempt goes the whole way."""
    monkeypatch.setattr(attempt, "run", lambda *given: pytest.fail("it went the whole way"))


@pytest.mark.parametrize("options", [{}, {"codec": Shouting()}], ids=["", "own codec"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.usefixtures("short_only")
def test_it_ends_as_the_whole_way(end, options, group, monkeypatch):
    at = clock.now()
    monkeypatch.setattr(clock, "now", lambda: at)
    ended = work(name="t.short.ends", retry=Retry(jitter=0), **options)(lambda: ENDS[end]())
    delivery = claimed(ended, group)
    whole, short = run(delivery, EngineServices()), run_shortest(delivery, EngineServices())
    assert whole is not None and short is not None
    assert short._replace(traceback="") == whole._replace(traceback="")
    assert bool(short.traceback) == bool(whole.traceback)


@given(
    value=st.recursive(st.none() | st.integers() | st.text(st.characters(codec="utf-8")), st.lists),
    group=st.none() | st.just("g"),
    codec=st.none() | st.just(Shouting()),
)
def test_any_value_says_what_its_plan_says(value, group, codec):
    returned = work(name=f"t.short.value{next(numbers)}", codec=codec)(lambda: value)
    row = claimed(returned, group).row
    own = Contribution(value)
    plan = EMPTY if value is None else Plan(own, (own,))
    assert success_of_value(value, row, returned) == success_from(plan, row)


@pytest.mark.usefixtures("short_only")
def test_a_shutdown_that_was_heeded_is_no_outcome():
    stopped = work(name="t.short.stops")(raising(Aborted(str(AbortReason.SHUTDOWN), id="x")))
    delivery = claimed(stopped)
    delivery.abort(AbortReason.SHUTDOWN)
    assert run_shortest(delivery, EngineServices()) is None


@pytest.mark.usefixtures("short_only")
def test_its_log_records_tell_of_the_attempt(caplog):
    @work(name="t.short.logs")
    def logs() -> None:
        logging.getLogger("t").warning("working")

    caplog.handler.addFilter(WorkContextFilter())
    delivery = claimed(logs)
    run_shortest(delivery, EngineServices())
    [record] = caplog.records
    assert (record.work_id, record.work_type, record.work_attempt) == (delivery.row.id, "t.short.logs", 1)


def middleware(ctx: Context, call_next: Any) -> Any:
    return call_next()


MORE = {
    "a transaction": {"atomic": True},
    "an interrupt": {"interrupt": True},
    "a middleware": {"middleware": [middleware]},
    "a log context": {"log_context": lambda input, type: {}},
    "an output": {"then": "tests.add"},
    "a listener": {"on_event": lambda event: None},
}


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The types whose attempts went the whole way."""
    types: list[str] = []
    monkeypatch.setattr(attempt, "run", lambda delivery, services: types.append(delivery.type))
    return types


@pytest.mark.parametrize("more", MORE)
def test_what_is_more_than_a_call_goes_the_whole_way(more, whole):
    run_shortest(claimed(work(name="t.short.more", **MORE[more])(lambda: 1)), EngineServices())
    assert whole == ["t.short.more"]


@pytest.mark.parametrize(
    "setting", [{"MIDDLEWARE": [middleware]}, {"LOG_CONTEXT": lambda input, type: {}}, {"ON_EVENT": print}]
)
def test_what_the_settings_want_goes_the_whole_way(setting, whole, configure):
    configure(**setting)
    run_shortest(claimed(work(name="t.short.set")(lambda: 1)), EngineServices())
    assert whole == ["t.short.set"]


def test_what_a_context_a_loop_a_deadline_or_a_receiver_needs_goes_the_whole_way(whole):
    @work(name="t.short.asks")
    def asks(ctx: Context) -> None: ...

    @work(name="t.short.awaits")
    async def awaits() -> None: ...

    told = work(name="t.short.told")(lambda: 1)
    run_shortest(claimed(asks), EngineServices())
    run_shortest(claimed(awaits), EngineServices())
    run_shortest(claimed(told, deadline=clock.now() + timedelta(hours=1)), EngineServices())
    receiver = lambda **given: None  # noqa: E731
    signals.work_started.connect(receiver)
    try:
        run_shortest(claimed(told), EngineServices())
    finally:
        signals.work_started.disconnect(receiver)
    assert whole == ["t.short.asks", "t.short.awaits", "t.short.told", "t.short.told"]


def test_what_cannot_be_read_or_is_unknown_ends_before_it_begins():
    unread = claimed(work(name="t.short.unread")(lambda: 1), input="{")
    settlement = run_shortest(unread, EngineServices())
    assert settlement is not None and settlement.ending.reason is Reason.BAD_INPUT
    unknown = claimed(work(name="t.short.gone")(lambda: 1), type="t.short.never_was")
    settlement = run_shortest(unknown, EngineServices())
    assert settlement is not None and settlement.ending.reason is Reason.UNKNOWN_TYPE
