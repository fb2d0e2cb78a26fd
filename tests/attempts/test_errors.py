"""Errors of handlers, hooks and receivers: each ends its attempt, and none ends a thread."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import Any

import pytest

from django_ayework import (
    Aborted,
    BatchItem,
    Context,
    NotEncodable,
    Retry,
    WorkFailed,
    batch_work,
    enqueue,
    enqueue_many,
    signals,
    work,
)
from django_ayework.models import Attempt, Work
from django_ayework.testing import drain, perform, running_worker
from tests.app.models import Order
from tests.app.works import add
from tests.attempts.conftest import ended
from tests.attempts.forms import atomic, declare, in_acomplete, in_complete, in_prepare, plain, with_context
from tests.fixtures import consistent  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
TWICE = Retry(attempts=2, base=0, jitter=0)


class PanicException(BaseException):
    """What a Rust extension raises for a panic."""


KINDS = (PanicException, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


def once(error: type[BaseException]):
    """Return a function that raises in its first call."""
    left = [error("no luck")]

    def act() -> str:
        if left:
            raise left.pop()
        return "second"

    return act


def in_async(act, **options):
    async def handler():
        await asyncio.sleep(0)
        return act()

    return declare(handler, **options)


def in_a_task_of_its_own(act, **options):
    async def inner():
        return act()

    async def handler():
        return await asyncio.create_task(inner())

    return declare(handler, **options)


def in_a_middleware(act, **options):
    def middleware(ctx, call_next):
        call_next()
        return act()

    return plain(lambda: None, middleware=[middleware], **options)


def in_an_async_middleware(act, **options):
    async def middleware(ctx, call_next):
        await call_next()
        return act()

    return plain(lambda: None, middleware=[middleware], **options)


HANDLERS = (
    plain, with_context, atomic, in_prepare, in_complete, in_async, in_acomplete, in_a_task_of_its_own,
    in_a_middleware, in_an_async_middleware,
)  # fmt: skip


@pytest.mark.parametrize("declared", HANDLERS)
def test_any_exception_is_recorded_and_retried(declared, settings):
    asked = []
    settings.AYEWORK = {"ON_FAILURE": lambda error, info: asked.append(type(error))}
    # asyncio cancels a handler whose task raised GeneratorExit
    kinds = [error for error in KINDS if (declared, error) != (in_a_task_of_its_own, GeneratorExit)]
    with running_worker(concurrency=1):
        for error in kinds:
            type_ = declared(once(error), retry=TWICE)
            handle = enqueue(type_())
            assert handle.result(timeout=20) == "second"
            assert enqueue(type_()).result(timeout=20) == "second"
            attempt = Attempt.objects.get(work_id=handle.id)
            assert (attempt.number, attempt.outcome) == (1, "failed")
            assert attempt.error == f"{error.__name__}: no luck"
            assert "raise left.pop()" in attempt.traceback
    assert asked == kinds
    assert Attempt.objects.count() == len(kinds)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_batch_fails_together(is_async):
    acts = {error.__name__: once(error) for error in KINDS}

    def handler(items):
        for name in {item.input for item in items}:
            acts[name]()
        return [item.input for item in items]

    async def ahandler(items):
        return handler(items)

    type_ = batch_work(name="attempts.case", retry=TWICE, size=2, max_wait=0)(
        ahandler if is_async else handler
    )
    with running_worker(concurrency=1):
        for name in acts:
            handles = enqueue_many([type_(name) for _ in range(2)])
            assert [handle.result(timeout=20) for handle in handles] == [name, name]
            attempts = Attempt.objects.filter(work_id__in=[handle.id for handle in handles])
            assert {attempt.error for attempt in attempts} == {f"{name}: no luck"}


def test_an_output_of_a_batch_may_be_any_exception():
    """asyncio.gather(..., return_exceptions=True) gives CancelledError, which is no Exception."""

    def handler(items):
        return [asyncio.CancelledError("left out") if item.input else "done" for item in items]

    type_ = batch_work(name="attempts.case", retry=Retry(attempts=1), size=2, max_wait=0)(handler)
    good, bad = enqueue_many([type_(number) for number in range(2)])
    assert drain(raises=False).succeeded == 1
    assert (good.result(), bad.state().error) == ("done", "CancelledError: left out")


@pytest.mark.parametrize("error", [PanicException, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_drain_and_perform_treat_it_as_any_other(error):
    type_ = plain(once(error), retry=TWICE)
    handle = enqueue(type_())
    assert (drain().retried, handle.result()) == (1, "second")
    assert isinstance(perform(plain(once(error))()).error, error)


def test_ctrl_c_stops_a_test_that_drains():
    enqueue(plain(once(KeyboardInterrupt), retry=TWICE)())
    with pytest.raises(KeyboardInterrupt):
        drain()
    drain()


def test_a_task_that_is_not_awaited_cannot_end_the_event_loop():
    async def inner():
        raise SystemExit("inner")

    async def handler():
        handler.task = asyncio.create_task(inner())
        await asyncio.sleep(0.01)
        return "done"

    type_ = work(name="attempts.case")(handler)
    with running_worker():
        assert [enqueue(type_()).result(timeout=20) for _ in range(2)] == ["done", "done"]


class Codec:
    """A codec that panics over one text."""

    bad = ""
    encode = staticmethod(json.dumps)

    def decode(self, text):
        if self.bad and self.bad in text:
            raise PanicException("in the codec")
        return json.loads(text)


def test_a_codec_that_panics_costs_its_work_only(settings):
    codec = Codec()
    settings.AYEWORK = {"POLL_INTERVAL": 0.05}
    type_ = work(name="attempts.case", retry=TWICE, codec=codec)(lambda text: text)
    bad, good = enqueue(type_(text="broken")), enqueue(type_(text="fine"))
    codec.bad = "broken"
    with running_worker(concurrency=1):
        assert good.result(timeout=20) == "fine"
        with pytest.raises(WorkFailed):
            bad.result(timeout=20)
    assert (bad.state().reason, bad.state().error) == ("bad_input", "PanicException: in the codec")


@contextmanager
def receiving(*receivers):
    """Connect receivers to the signals of an attempt."""
    heard = (signals.work_started, signals.work_succeeded, signals.work_failed)
    for signal in heard:
        for receiver in receivers:
            signal.connect(receiver)
    yield
    for signal in heard:
        for receiver in receivers:
            signal.disconnect(receiver)


def test_threads_survive_receivers_and_hooks(settings):
    error, handles, ids, reported = KINDS[0], [], [], []

    def raises(*args, **kwargs):
        raise error("a hook")

    def receives(sender, work, **kwargs):
        ids.append(work.id)

    settings.AYEWORK = {
        "POLL_INTERVAL": 0.05,
        "ON_FAILURE": raises,
        "ON_EVENT": raises,
        "LOG_CONTEXT": raises,
        "BACKPRESSURE": lambda info: None if error in map(type, reported) else raises(),
        "ON_ERROR": lambda caught, phase: reported.append(caught) or raises(),
    }
    with receiving(raises, receives), running_worker(concurrency=1):
        for kind in KINDS:
            error = kind
            handles += [enqueue(add(a=number, b=1)) for number in range(3)]
            assert [handle.result(timeout=20) for handle in handles[-3:]] == [1, 2, 3]
            type_ = plain(once(PanicException), retry=TWICE)
            assert [enqueue(type_()).result(timeout=20) for _ in range(2)] == ["second", "second"]
    assert {handle.id for handle in handles} <= set(ids)
    assert set(map(type, reported)) == set(KINDS)


def test_threads_survive_async_receivers():
    error, handles, ids = KINDS[0], [], []

    async def raises(sender, work, **kwargs):
        raise error("a receiver")

    async def receives(sender, work, **kwargs):
        ids.append(work.id)

    with receiving(raises, receives), running_worker(concurrency=1):
        for kind in KINDS:
            error = kind
            handles += [enqueue(add(a=number, b=1)) for number in range(2)]
            assert [handle.result(timeout=20) for handle in handles[-2:]] == [1, 2]
        enqueue(add(a=0, b=0)).result(timeout=20)
    assert {handle.id for handle in handles} <= set(ids)


def test_an_append_that_raises_fails_its_attempt():
    acts = {error.__name__: once(error) for error in KINDS}

    def handler(ctx: Context, name: str):
        return ctx.result("second", append=lambda existing: acts[name]())

    type_ = declare(handler, retry=TWICE)
    with running_worker(concurrency=1):
        for name in acts:
            handle = enqueue(type_(name=name))
            assert handle.result(timeout=20) == "second"
            assert Attempt.objects.get(work_id=handle.id).error == f"{name}: no luck"


def fails() -> None:
    raise ValueError("no luck")


async def afails() -> None:
    raise ValueError("no luck")


def advise(error: Exception, info: Any) -> str:
    Order.objects.create(reference=f"{info.type} {info.attempt}")
    return "abort"


async def aadvise(error: Exception, info: Any) -> str:
    await Order.objects.acreate(reference=f"{info.type} {info.attempt}")
    return "abort"


#: Each handler with each hook.
MIXES = [(function, hook) for function in (fails, afails) for hook in (advise, aadvise)]


def test_on_failure_may_query(configure, reported):
    with running_worker(concurrency=1):
        for function, hook in MIXES:
            configure(ON_FAILURE=hook)
            assert ended(enqueue(work(name="attempts.case")(function)())).reason == "aborted"
    assert reported == []
    assert [order.reference for order in Order.objects.all()] == ["attempts.case 1"] * len(MIXES)


@pytest.mark.django_db(transaction=False)
@pytest.mark.parametrize(("function", "hook"), MIXES)
def test_on_failure_may_query_in_a_test_case(reported, function, hook):
    handle = enqueue(work(name="attempts.case", on_failure=hook)(function)())
    drain(raises=False)
    assert (ended(handle).reason, reported) == ("aborted", [])
    assert Order.objects.get().reference == "attempts.case 1"


def batch_raises(items: list[BatchItem[int]]) -> list[int]:
    raise ValueError("no luck")


def batch_fails_one(items: list[BatchItem[int]]) -> list[Any]:
    return [ValueError("no luck") for _ in items]


async def abatch_raises(items: list[BatchItem[int]]) -> list[int]:
    return batch_raises(items)


async def abatch_fails_one(items: list[BatchItem[int]]) -> list[Any]:
    return batch_fails_one(items)


def test_on_failure_may_query_for_the_works_of_a_batch(configure, reported):
    configure()
    with running_worker(concurrency=1):
        for function in (batch_raises, abatch_raises, batch_fails_one, abatch_fails_one):
            for hook in (advise, aadvise):
                declared = batch_work(name="attempts.case", size=2, on_failure=hook)(function)
                handles = enqueue_many([declared(number) for number in range(2)])
                assert [ended(handle).reason for handle in handles] == ["aborted"] * 2
    assert (Order.objects.count(), reported) == (16, [])


@pytest.mark.django_db(transaction=False)
def test_on_failure_is_not_asked_about_an_attempt_that_was_asked_to_stop():
    asked: list[Exception] = []

    def stops() -> None:
        raise Aborted("shutdown")

    enqueue(plain(stops, retry=Retry(attempts=1), on_failure=lambda error, info: asked.append(error))())
    assert drain().dead == 1
    assert not asked


@work(name="attempts.many_children", retry=Retry(attempts=1))
def many_children(ctx: Context, number: int) -> Any:
    return ctx.queue([add(a=object(), b=0), *(add(a=n, b=0) for n in range(number - 1))])


@pytest.mark.parametrize("number", [101, 1010])
def test_one_of_many_inputs_that_cannot_be_stored_fails_the_attempt(configure, number):
    asked: list[str] = []
    configure(ON_FAILURE=lambda error, info: asked.append(type(error).__name__))
    handle = enqueue(many_children(number=number))
    with running_worker(concurrency=2, exclude_types=["shop.add"]):
        state = ended(handle)
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert not Work.objects.filter(type="shop.add").exists()
    assert "the input of 'shop.add' cannot be stored" in state.error
    assert asked == ["NotEncodable"]
    assert isinstance(perform(many_children(number=number)).error, NotEncodable)
