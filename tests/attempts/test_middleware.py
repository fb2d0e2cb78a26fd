"""Middlewares surround the handler of every attempt, in any mix of plain and async functions."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from django.db import connection, transaction

from django_ayework import Abort, Context, Retry, cancel, enqueue, work
from django_ayework.models import Attempt, Work
from django_ayework.testing import drain, perform, running_worker
from tests.app.models import Order
from tests.app.works import add
from tests.attempts.conftest import ended
from tests.attempts.forms import awaited
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
with_commits = pytest.mark.django_db(transaction=True)
ONION = ["outer before", "inner before", "handler", "inner after", "outer after"]
TOO_LATE = "AttemptTimeout: the attempt ran longer than its timeout of 0.05 seconds."
#: What ran, in order.
steps: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    steps.clear()


def plain(name: str, **extra: Any) -> Any:
    """A middleware that notes when it is entered and left."""

    def middleware(ctx, call_next):
        steps.append(f"{name} before")
        try:
            return call_next(**extra)
        finally:
            steps.append(f"{name} after")

    return middleware


def async_(name: str, **extra: Any) -> Any:
    """The same as an async function."""

    async def middleware(ctx, call_next):
        steps.append(f"{name} before")
        try:
            return await call_next(**extra)
        finally:
            steps.append(f"{name} after")

    return middleware


def handler(ctx: Context) -> dict[str, Any]:
    steps.append("handler")
    return dict(ctx.extra)


def run(function: Any, **options: Any) -> Any:
    """Declare a handler, queue it, run it; return its state."""
    handle = enqueue(work(**{"name": "attempts.case", "retry": Retry(attempts=1), **options})(function)())
    drain(raises=False)
    return handle.state()


def in_a_worker(function: Any, **options: Any) -> Any:
    """The same, run by a real worker."""
    handle = enqueue(work(name="attempts.case", retry=Retry(attempts=1), **options)(function)())
    with running_worker(concurrency=2):
        return ended(handle)


both = pytest.mark.parametrize("function", [handler, awaited(handler)], ids=["handler", "async handler"])
each_kind = pytest.mark.parametrize("kind", [plain, async_])
MIXES = [(plain, plain), (plain, async_), (async_, plain), (async_, async_)]


@both
@pytest.mark.parametrize(("outer", "inner"), MIXES)
def test_the_first_is_the_outermost_and_those_of_the_settings_surround_it(configure, function, outer, inner):
    assert run(function, middleware=[outer("outer"), inner("inner")]).status == "success"
    assert steps == ONION
    steps.clear()
    configure(MIDDLEWARE=[outer("outer", a=1)])
    run(function, middleware=[inner("inner")])
    assert steps == ONION
    steps.clear()
    performed = work(name="attempts.case", middleware=[inner("inner")])(function)()
    assert perform(performed).result == {"a": 1}
    assert steps == ONION


class Counting:
    """A middleware that is an object."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def __call__(self, ctx, call_next):
        steps.append("object")
        return call_next()


class AwaitedObject:
    async def __call__(self, ctx, call_next):
        steps.append("async object")
        return await call_next()


def named(ctx, call_next):
    steps.append("named")
    return call_next()


@both
def test_they_may_be_dotted_paths_objects_and_classes_of_which_one_object_is_made(configure, function):
    here = __name__
    configure(MIDDLEWARE=[f"{here}.named", f"{here}.Counting"])
    run(function, middleware=[f"{here}.named", Counting, AwaitedObject(), f"{here}.Counting"])
    assert steps == ["named", "object", "named", "object", "async object", "object", "handler"]
    before = Counting.made
    for _ in range(3):
        run(function, middleware=[Counting])
    assert Counting.made - before <= 1


@both
def test_extras_appear_in_the_context_and_inner_ones_win(function):
    seen: list[Any] = []

    def look(ctx, call_next):
        seen.append(dict(ctx.extra))
        return call_next()

    state = run(function, middleware=[plain("outer", a=1, b=1), look, async_("inner", b=2, c=3)])
    assert (state.result, seen) == ({"a": 1, "b": 2, "c": 3}, [{"a": 1, "b": 1}])
    assert run(function).result == {}


def test_names_of_the_contexts_own_are_never_replaced_and_the_handler_writes_no_extras(caplog):
    def forged(ctx: Context) -> list[Any]:
        with pytest.raises(TypeError, match="does not support item assignment"):
            ctx.extra["a"] = 1  # type: ignore[index]
        return [ctx.id, ctx.attempt, dict(ctx.extra), ctx.result("mine").value]

    state = run(forged, strict_return=False, middleware=[plain("m", id="x", attempt=9, result=None, kept=1)])
    assert state.result == [state.id, 1, {"kept": 1}, "mine"]
    assert "passed on 'attempt', 'id', 'result', which are attributes of the context" in caplog.text


tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def set_tenant(ctx, call_next):
    token = tenant.set(f"tenant of {ctx.type}")
    try:
        return call_next(tenant=tenant.get())
    finally:
        tenant.reset(token)


def of_tenant(ctx: Context) -> list[str]:
    return [tenant.get(), ctx.extra["tenant"]]


@with_commits
@pytest.mark.parametrize("function", [of_tenant, awaited(of_tenant)], ids=["plain", "async"])
@pytest.mark.parametrize("runs", [run, in_a_worker])
def test_a_context_variable_reaches_the_handler_and_is_gone_after_it(configure, function, runs):
    configure(MIDDLEWARE=[set_tenant])
    assert runs(function).result == ["tenant of attempts.case"] * 2
    assert tenant.get() == "nobody"


@both
def test_one_that_does_not_go_on_gives_the_outcome(function):
    def refuse(ctx, call_next):
        raise Abort("not for this tenant")

    state = run(function, middleware=[plain("outer"), lambda ctx, call_next: ctx.queue([add(a=1, b=2)])])
    assert (state.status, state.result, steps) == ("success", None, ["outer before", "outer after"])
    says_so = awaited(lambda ctx, call_next: ctx.result("instead"))
    assert run(function, middleware=[says_so]).result == "instead"
    assert run(function, middleware=[refuse], retry=Retry(attempts=5)).reason == "aborted"


def that_raises(error: BaseException) -> Any:
    def raises(ctx, call_next):
        call_next()
        raise error

    return raises


@with_commits
@both
@pytest.mark.parametrize(
    ("kind", "error"),
    [(plain, LookupError), (plain, StopIteration), (async_, StopIteration), (async_, GeneratorExit)],
)
def test_one_that_raises_fails_the_attempt_as_a_handler_would(configure, function, kind, error):
    """Also with an error that asyncio does not pass on as it is."""
    asked: list[Any] = []
    configure(ON_FAILURE=lambda error, info: asked.append((type(error).__name__, info.attempt)))
    state = in_a_worker(function, middleware=[kind("outer"), that_raises(error("no luck"))])
    assert (state.status, steps) == ("dead", ["outer before", "handler", "outer after"])
    instead = ["RuntimeError: coroutine raised StopIteration"] if error is StopIteration else []
    assert state.error in [f"{error.__name__}: no luck", *instead]
    assert asked == [(state.error.partition(":")[0], 1)]
    assert "no luck" in Attempt.objects.get().traceback


def at_second(ctx: Context) -> str:
    steps.append("handler")
    if steps.count("handler") == 1:
        ctx.queue([add(a=1, b=2)])
        raise ValueError("once")
    return "second"


def again(ctx, call_next):
    try:
        return call_next()
    except ValueError:
        return call_next()


async def aagain(ctx, call_next):
    try:
        return await call_next()
    except ValueError:
        return await call_next()


@pytest.mark.parametrize("function", [at_second, awaited(at_second)], ids=["plain", "async"])
@pytest.mark.parametrize("middleware", [again, aagain])
@each_kind
def test_one_may_call_the_handler_again_and_what_that_said_before_its_error_is_dropped(
    function, middleware, kind
):
    assert run(function, middleware=[middleware, kind("inner")]).result == "second"
    assert Work.objects.count() == 1


@with_commits
@each_kind
def test_an_async_handler_is_cancelled_within_any_middleware(configure, kind):
    async def sleeps() -> None:
        steps.append("handler")
        try:
            await asyncio.sleep(60)
        finally:
            steps.append("cancelled")

    configure(SHUTDOWN_GRACE=0.05)
    assert in_a_worker(sleeps, timeout=0.05, middleware=[kind("m")]).error == TOO_LATE
    assert steps == ["m before", "handler", "cancelled", "m after"]
    steps.clear()
    handle = enqueue(work(name="attempts.case", middleware=[kind("m")])(sleeps)())
    with running_worker(concurrency=1):
        eventually(lambda: "handler" in steps)
    assert handle.state().status == "pending"
    cancel(handle.id)
    eventually(lambda: steps[-1] == "m after")


@with_commits
def test_an_async_handler_does_not_start_once_its_time_is_over_within_a_plain_middleware():
    over = threading.Event()

    def waits(ctx, call_next):
        assert ctx.signal.wait(30)
        try:
            return call_next()
        finally:
            over.set()

    assert in_a_worker(awaited(handler), timeout=0.05, middleware=[waits]).error == TOO_LATE
    assert over.wait(30)
    assert steps == []


@each_database
@each_kind
def test_those_of_an_atomic_work_run_inside_its_transaction(kind):
    depth = len(connection.atomic_blocks)

    def wrote(ctx, call_next):
        Order.objects.create(reference="middleware")
        steps.append(f"depth {len(connection.atomic_blocks)}")
        return call_next()

    def breaks() -> None:
        raise ValueError("undo")

    run(breaks, atomic=True, middleware=[kind("m"), wrote])
    assert f"depth {depth + 1}" in steps
    assert not Order.objects.exists()


@each_database
def test_those_of_a_staged_work_surround_the_attempt_and_their_error_undoes_complete():
    def staged(ctx: Context) -> Any:
        with ctx.prepare():
            steps.append("prepare")
        with ctx.complete():
            steps.append("complete")
            Order.objects.create(reference="complete")
            return ctx.result("done")

    assert run(staged, middleware=[that_raises(LookupError("after all"))]).error == "LookupError: after all"
    assert not Order.objects.exists()
    steps.clear()
    assert run(staged, middleware=[plain("m"), async_("n")]).result == "done"
    assert steps == ["m before", "n before", "prepare", "complete", "n after", "m after"]


@each_database
@with_commits
@each_kind
def test_a_plain_handler_keeps_its_thread_and_an_async_one_its_loop(configure, kind):
    configure()

    def where() -> str:
        with transaction.atomic():
            Order.objects.create(reference="here")
        return threading.current_thread().name

    async def awhere() -> str:
        await Order.objects.acreate(reference="here")
        return threading.current_thread().name

    assert in_a_worker(where, middleware=[kind("m")]).result == "ayework-slot-0"
    assert in_a_worker(awhere, middleware=[kind("m")]).result == "ayework-async"
    assert Order.objects.count() == 2
