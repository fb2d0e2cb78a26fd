"""Whatever a handler raises ends its attempt; whatever hooks and receivers raise ends no thread."""

from __future__ import annotations

import asyncio

import pytest

from django_ayework import Context, Retry, WorkFailed, batch_work, enqueue, enqueue_many, signals, work
from django_ayework.models import Attempt
from django_ayework.testing import drain, perform, running_worker
from tests.app.works import add
from tests.fixtures import consistent  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
TWICE = Retry(attempts=2, base=0, jitter=0)


class PanicException(BaseException):
    """What a Rust extension raises for a panic."""


KINDS = (PanicException, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
each_error = pytest.mark.parametrize("error", KINDS)


def once(error: type[BaseException]):
    """Return a function that raises in its first call."""
    left = [error("no luck")]

    def act() -> str:
        if left:
            raise left.pop()
        return "second"

    return act


def plain(act):
    return work(name="modes.case", retry=TWICE)(lambda: act())


def with_context(act):
    def handler(ctx: Context):
        return act()

    return work(name="modes.case", retry=TWICE)(handler)


def atomic(act):
    return work(name="modes.case", retry=TWICE, atomic=True)(lambda: act())


def in_prepare(act):
    def handler(ctx: Context):
        with ctx.prepare():
            return act()

    return work(name="modes.case", retry=TWICE)(handler)


def in_complete(act):
    def handler(ctx: Context):
        with ctx.complete():
            return act()

    return work(name="modes.case", retry=TWICE)(handler)


def in_async(act):
    async def handler():
        await asyncio.sleep(0)
        return act()

    return work(name="modes.case", retry=TWICE)(handler)


def in_acomplete(act):
    async def handler(ctx: Context):
        return await ctx.acomplete(act)

    return work(name="modes.case", retry=TWICE)(handler)


def in_a_task_of_its_own(act):
    async def inner():
        return act()

    async def handler():
        return await asyncio.create_task(inner())

    return work(name="modes.case", retry=TWICE)(handler)


def in_a_middleware(act):
    def middleware(ctx, call_next):
        call_next()
        return act()

    return work(name="modes.case", retry=TWICE, middleware=[middleware])(lambda: None)


def in_an_async_middleware(act):
    async def middleware(ctx, call_next):
        await call_next()
        return act()

    return work(name="modes.case", retry=TWICE, middleware=[middleware])(lambda: None)


HANDLERS = (
    plain, with_context, atomic, in_prepare, in_complete, in_async, in_acomplete, in_a_task_of_its_own,
    in_a_middleware, in_an_async_middleware,
)  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "error"),
    [
        (declared, error)
        for declared in HANDLERS
        for error in KINDS
        # asyncio itself tears down whatever awaits a task that raised GeneratorExit
        if (declared, error) != (in_a_task_of_its_own, GeneratorExit)
    ],
)
def test_it_is_recorded_and_retried(declared, error, settings):
    asked = []
    settings.AYEWORK = {"ON_FAILURE": lambda error, info: asked.append(type(error))}
    type_ = declared(once(error))
    with running_worker(concurrency=1):
        assert enqueue(type_()).result(timeout=20) == "second"
        assert enqueue(type_()).result(timeout=20) == "second"
    attempt = Attempt.objects.get()
    assert (attempt.number, attempt.outcome, attempt.error) == (1, "failed", f"{error.__name__}: no luck")
    assert "raise left.pop()" in attempt.traceback
    assert asked == [error]


@each_error
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_batch_fails_together(error, is_async):
    act = once(error)

    def handler(items):
        act()
        return [item.input for item in items]

    async def ahandler(items):
        return handler(items)

    type_ = batch_work(name="modes.case", retry=TWICE, size=2, max_wait=0)(ahandler if is_async else handler)
    handles = enqueue_many([type_(number) for number in range(2)])
    with running_worker(concurrency=1):
        assert [handle.result(timeout=20) for handle in handles] == [0, 1]
    assert {attempt.error for attempt in Attempt.objects.all()} == {f"{error.__name__}: no luck"}


def test_an_output_of_a_batch_may_be_any_exception():
    """asyncio.gather(..., return_exceptions=True) gives CancelledError, which is no Exception."""

    def handler(items):
        return [asyncio.CancelledError("left out") if item.input else "done" for item in items]

    type_ = batch_work(name="modes.case", retry=Retry(attempts=1), size=2, max_wait=0)(handler)
    good, bad = enqueue_many([type_(number) for number in range(2)])
    assert drain(raises=False).succeeded == 1
    assert (good.result(), bad.state().error) == ("done", "CancelledError: left out")


@pytest.mark.parametrize("error", [PanicException, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_a_test_that_drains_or_performs_sees_it_as_any_other(error):
    type_ = plain(once(error))
    handle = enqueue(type_())
    assert (drain().retried, handle.result()) == (1, "second")
    assert isinstance(perform(plain(once(error))()).error, error)


def test_ctrl_c_stops_a_test_that_drains():
    enqueue(plain(once(KeyboardInterrupt))())
    with pytest.raises(KeyboardInterrupt):
        drain()
    drain()


def test_a_task_that_nobody_awaits_cannot_end_the_event_loop():
    async def inner():
        raise SystemExit("inner")

    async def handler():
        handler.task = asyncio.create_task(inner())
        await asyncio.sleep(0.01)
        return "done"

    type_ = work(name="modes.case")(handler)
    with running_worker():
        assert [enqueue(type_()).result(timeout=20) for _ in range(2)] == ["done", "done"]


class Codec:
    """A codec that panics over what it is told to."""

    def __init__(self) -> None:
        self.bad = ""

    def encode(self, value):
        import json

        return json.dumps(value)

    def decode(self, text):
        import json

        if self.bad and self.bad in text:
            raise PanicException("in the codec")
        return json.loads(text)


def test_a_codec_that_panics_costs_its_work_only(settings):
    codec = Codec()
    settings.AYEWORK = {"POLL_INTERVAL": 0.05}
    type_ = work(name="modes.case", retry=TWICE, codec=codec)(lambda text: text)
    bad, good = enqueue(type_(text="broken")), enqueue(type_(text="fine"))
    codec.bad = "broken"
    with running_worker(concurrency=1):
        assert good.result(timeout=20) == "fine"
        with pytest.raises(WorkFailed):
            bad.result(timeout=20)
    assert (bad.state().reason, bad.state().error) == ("bad_input", "PanicException: in the codec")


@each_error
def test_threads_survive_receivers_and_hooks(error, settings):
    """Those of the engine that settle, claim and run handlers, and the ones behind a receiver that raises."""

    def raises(*args, **kwargs):
        raise error("a hook")

    told, reported = [], []

    def hears(sender, work, **kwargs):
        told.append(work.id)

    settings.AYEWORK = {
        "POLL_INTERVAL": 0.05,
        "ON_FAILURE": raises,
        "ON_EVENT": raises,
        "LOG_CONTEXT": raises,
        "BACKPRESSURE": lambda info: raises() if not reported else None,
        "ON_ERROR": lambda caught, phase: reported.append(caught) or raises(),
    }
    heard = (signals.work_started, signals.work_succeeded, signals.work_failed)
    for signal in heard:
        signal.connect(raises)
        signal.connect(hears)
    try:
        handles = [enqueue(add(a=number, b=1)) for number in range(3)]
        with running_worker(concurrency=1):
            assert [handle.result(timeout=20) for handle in handles] == [1, 2, 3]
            type_ = plain(once(PanicException))
            assert [enqueue(type_()).result(timeout=20) for _ in range(2)] == ["second", "second"]
    finally:
        for signal in heard:
            signal.disconnect(raises)
            signal.disconnect(hears)
    assert {handle.id for handle in handles} <= set(told)
    assert reported and all(isinstance(each, error) for each in reported)


@each_error
def test_threads_survive_async_receivers(error):
    told = []

    async def raises(sender, work, **kwargs):
        raise error("a receiver")

    async def hears(sender, work, **kwargs):
        told.append(work.id)

    signals.work_succeeded.connect(raises)
    signals.work_succeeded.connect(hears)
    try:
        with running_worker(concurrency=1):
            handles = [enqueue(add(a=number, b=1)) for number in range(2)]
            assert [handle.result(timeout=20) for handle in handles] == [1, 2]
            enqueue(add(a=0, b=0)).result(timeout=20)
    finally:
        signals.work_succeeded.disconnect(raises)
        signals.work_succeeded.disconnect(hears)
    assert {handle.id for handle in handles} <= set(told)


@each_error
def test_an_append_that_raises_fails_its_attempt(error):
    act = once(error)

    def handler(ctx: Context):
        return ctx.result("second", append=lambda existing: act())

    type_ = work(name="modes.case", retry=TWICE)(handler)
    with running_worker(concurrency=1):
        assert enqueue(type_()).result(timeout=20) == "second"
    assert Attempt.objects.get().error == f"{error.__name__}: no luck"
