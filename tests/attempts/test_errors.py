"""Errors of handlers, hooks and receivers: each ends its attempt, and none ends a thread."""

import asyncio
import json
import threading
from types import SimpleNamespace

import pytest
from django.db import OperationalError

from django_ayework import Aborted, Context, NotEncodable, Retry, WorkFailed, batch_work, signals, work
from django_ayework.api import enqueue, enqueue_many
from django_ayework.models import Attempt, Work
from django_ayework.testing import drain, perform, running_worker
from tests.app.models import Order
from tests.app.works import add
from tests.attempts import forms
from tests.attempts.conftest import connected, ended
from tests.attempts.forms import awaited, declare, form, plain
from tests.fixtures import consistent  # noqa: F401
from tests.marks import each_database

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("sqlite")]
ONCE, TWICE = Retry(attempts=1), Retry(attempts=2, base=0, jitter=0)
plain_and_async = pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])


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


def of_a_task(act):
    async def handler():
        return await asyncio.create_task(awaited(act)())

    return handler


def in_a_middleware(act, **options):
    return plain(lambda: None, middleware=[lambda ctx, call_next: (call_next(), act())[1]], **options)


def in_an_async_middleware(act, **options):
    async def middleware(ctx, call_next):
        await call_next()
        return act()

    return plain(lambda: None, middleware=[middleware], **options)


in_a_task_of_its_own = form("in_a_task_of_its_own", of_a_task)
in_an_append = form("in_an_append", lambda act: lambda ctx: ctx.result("second", append=lambda _: act()))


HANDLERS = (
    plain, forms.in_prepare, forms.in_complete, forms.in_async, forms.in_acomplete, in_a_task_of_its_own,
    in_a_middleware, in_an_async_middleware, in_an_append,
)  # fmt: skip


@pytest.mark.parametrize("declared", [pytest.param(forms.atomic, marks=each_database), *HANDLERS])
def test_any_exception_is_recorded_and_retried(declared, settings):
    is_append = declared is in_an_append  # which is called once the attempt has ended
    asked, where = [], "the append function of" if is_append else "raise left.pop()"
    settings.AYEWORK = {"ON_FAILURE": lambda error, info: asked.append(type(error))}
    # asyncio cancels a handler whose task raised GeneratorExit
    kinds = [error for error in KINDS if (declared, error) != (in_a_task_of_its_own, GeneratorExit)]
    with running_worker(concurrency=1):
        for error in kinds:
            handle = enqueue(declared(once(error), retry=TWICE)())
            assert handle.result(timeout=20) == "second"
            attempt = Attempt.objects.get(work_id=handle.id)
            assert (attempt.number, attempt.outcome) == (1, "failed")
            assert attempt.error == f"{error.__name__}: no luck"
            assert where in attempt.traceback
    assert asked == ([] if is_append else kinds)
    assert Attempt.objects.count() == len(kinds)


class UnprintableError(Exception):
    """An error whose traceback Python cannot print, as one with an attribute that is computed and fails."""

    @property
    def __cause__(self):
        raise RuntimeError("no cause")


#: Errors, and what the stored traceback says of them. The second is that of a parser that gives a number in
#: place of the line; Python 3.14 prints it.
UNPRINTABLE = [
    (UnprintableError("no luck"), "cannot be printed"),
    (SyntaxError("no luck", ("page", 1, 1, 5)), "SyntaxError: no luck"),
]


@plain_and_async
@pytest.mark.parametrize(("error", "note"), UNPRINTABLE, ids=["cause", "syntax"])
def test_an_error_whose_traceback_cannot_be_printed_is_recorded_as_any_other(is_async, error, note):
    def act():
        raise error

    declared = (forms.in_async if is_async else plain)(act, retry=ONCE)
    with running_worker(concurrency=1):
        handles = [enqueue(declared()) for _ in range(2)]
        for handle in handles:
            with pytest.raises(WorkFailed, match="no luck"):
                handle.result(timeout=20)
    attempt = Attempt.objects.get(work_id=handles[1].id)
    assert attempt.error.startswith(f"{type(error).__name__}: no luck")
    assert "in act" in attempt.traceback and note in attempt.traceback


class NamelessKind(type):
    """A class whose errors have a type without a name."""

    @property
    def __name__(cls):
        raise LookupError("no name")


class NamelessError(Exception, metaclass=NamelessKind):
    """An error whose type has no name."""


class TracelessError(Exception):
    """An error that does not give its traceback."""

    @property
    def __traceback__(self):
        raise LookupError("no traceback")


@plain_and_async
@pytest.mark.parametrize("kind", [NamelessError, TracelessError], ids=["name", "traceback"])
def test_an_error_that_cannot_be_described_fails_its_attempt(is_async, kind):
    def act():
        raise kind("no luck")

    declared = (forms.in_async if is_async else plain)(act, retry=ONCE)
    with running_worker(concurrency=1):
        handle = enqueue(declared())
        with pytest.raises(WorkFailed, match=r"no name|no traceback"):
            handle.result(timeout=20)


def test_a_receiver_whose_error_cannot_be_printed_ends_no_thread():
    def receiver(**kwargs):
        raise UnprintableError("no luck")

    with connected(receiver, signals.work_started, signals.work_succeeded), running_worker(concurrency=1):
        for handle in [enqueue(plain(lambda: "well")()) for _ in range(2)]:
            assert handle.result(timeout=20) == "well"


@plain_and_async
def test_a_batch_fails_together(is_async):
    acts = {error.__name__: once(error) for error in KINDS}

    def handler(items):
        for name in {item.input for item in items}:
            acts[name]()
        return [item.input for item in items]

    chosen = awaited(handler) if is_async else handler
    type_ = batch_work(name="attempts.case", retry=TWICE, size=2, max_wait=0)(chosen)
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

    type_ = batch_work(name="attempts.case", retry=ONCE, size=2, max_wait=0)(handler)
    good, bad = enqueue_many([type_(number) for number in range(2)])
    assert drain(raises=False).succeeded == 1
    assert (good.result(), bad.state().error) == ("done", "CancelledError: left out")


@pytest.mark.parametrize("error", [PanicException, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_drain_and_perform_treat_it_as_any_other(error):
    handle = enqueue(plain(once(error), retry=TWICE)())
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

    tasks = []

    async def handler():
        tasks.append(asyncio.create_task(inner()))
        await asyncio.sleep(0.01)
        return "done"

    type_ = declare(handler)
    with running_worker():
        assert [enqueue(type_()).result(timeout=20) for _ in range(2)] == ["done", "done"]
    # A task whose exception nothing asks for is logged by the garbage collector, in any later test.
    assert [type(task.exception()) for task in tasks] == [SystemExit, SystemExit]


def test_a_codec_that_panics_costs_its_work_only(configure):
    def decode(text):
        if text in panics_over:
            raise PanicException("in the codec")
        return json.loads(text)

    panics_over = []
    configure()
    codec = SimpleNamespace(encode=json.dumps, decode=decode)
    type_ = declare(lambda text: text, retry=TWICE, codec=codec)
    bad, good = enqueue(type_(text="broken")), enqueue(type_(text="fine"))
    panics_over.append(Work.objects.get(id=bad.id).input)
    with running_worker(concurrency=1):
        assert good.result(timeout=20) == "fine"
        with pytest.raises(WorkFailed):
            bad.result(timeout=20)
    assert (bad.state().reason, bad.state().error) == ("bad_input", "PanicException: in the codec")


@pytest.mark.parametrize("error", [ConnectionError("no key"), OperationalError("no key")])
def test_a_codec_whose_server_is_away_costs_an_attempt_only(configure, error):
    def decode(text):
        if text in errors:
            raise errors.pop(text)
        return json.loads(text)

    errors = {}
    configure()
    codec = SimpleNamespace(encode=json.dumps, decode=decode)
    handle = enqueue(declare(lambda text: text, retry=TWICE, codec=codec)(text="sealed"))
    errors[Work.objects.get(id=handle.id).input] = error
    with running_worker(concurrency=1):
        assert handle.result(timeout=20) == "sealed"
    failed = ("failed", f"{type(error).__name__}: no key")
    assert list(Attempt.objects.values_list("outcome", "error")) == [failed]


@plain_and_async
def test_threads_survive_receivers_and_hooks(configure, is_async):
    error, handles, ids, reported = KINDS[0], [], [], []

    def raises(*args, **kwargs):
        if threading.current_thread() is not threading.main_thread():
            raise error("a hook")

    def receives(sender, work, **kwargs):
        ids.append(work.id)

    hooks = {
        **dict.fromkeys(("ON_FAILURE", "ON_EVENT", "LOG_CONTEXT"), raises),
        "BACKPRESSURE": lambda info: None if error in map(type, reported) else raises(),
        "ON_ERROR": lambda caught, phase: reported.append(caught) or raises(),
    }
    configure(**({} if is_async else hooks))
    first, second = (awaited(raises), awaited(receives)) if is_async else (raises, receives)
    heard = (signals.work_started, signals.work_succeeded, signals.work_failed)
    with connected(first, *heard), connected(second, *heard), running_worker(concurrency=1):
        for kind in KINDS:
            error = kind
            handles += enqueue_many([add(a=number, b=1) for number in range(2)])
            assert [handle.result(timeout=20) for handle in handles[-2:]] == [1, 2]
            assert enqueue(plain(once(PanicException), retry=TWICE)()).result(timeout=20) == "second"
    assert {handle.id for handle in handles} <= set(ids)
    assert set(map(type, reported)) == set([] if is_async else KINDS)


def fails():
    raise ValueError("no luck")


def advise(error, info):
    Order.objects.create(reference=f"{info.type} {info.attempt}")
    return "abort"


async def aadvise(error, info):
    await Order.objects.acreate(reference=f"{info.type} {info.attempt}")
    return "abort"


def batch_raises(items):
    raise ValueError("no luck")


def batch_fails_one(items):
    return [ValueError("no luck") for _ in items]


HANDLERS_THAT_FAIL = [fails, awaited(fails)]
BATCHES_THAT_FAIL = [batch_raises, awaited(batch_raises), batch_fails_one, awaited(batch_fails_one)]


@each_database
@pytest.mark.parametrize("hook", [advise, aadvise])
def test_on_failure_may_query_in_a_worker(configure, reported, hook):
    configure(ON_FAILURE=hook)
    with running_worker(concurrency=1):
        for function in HANDLERS_THAT_FAIL:
            assert ended(enqueue(declare(function)())).reason == "aborted"
        for function in BATCHES_THAT_FAIL:
            declared = batch_work(name="attempts.case", size=2, on_failure=hook)(function)
            handles = enqueue_many([declared(number) for number in range(2)])
            assert [ended(handle).reason for handle in handles] == ["aborted"] * 2
    assert reported == []
    assert [order.reference for order in Order.objects.all()] == ["attempts.case 1"] * 10


@pytest.mark.django_db(transaction=False)
@pytest.mark.parametrize("hook", [advise, aadvise])
@pytest.mark.parametrize("function", HANDLERS_THAT_FAIL, ids=["plain", "async"])
def test_on_failure_may_query_in_a_test_case(reported, function, hook):
    handle = enqueue(declare(function, on_failure=hook)())
    drain(raises=False)
    assert (ended(handle).reason, reported) == ("aborted", [])
    assert Order.objects.get().reference == "attempts.case 1"


@pytest.mark.django_db(transaction=False)
def test_on_failure_is_not_asked_about_an_attempt_that_was_asked_to_stop():
    asked: list[Exception] = []

    def stops() -> None:
        raise Aborted("shutdown")

    enqueue(plain(stops, retry=ONCE, on_failure=lambda error, info: asked.append(error))())
    assert drain().dead == 1
    assert not asked


@each_database
@pytest.mark.parametrize("number", [pytest.param(101, marks=pytest.mark.vendors("sqlite")), 1010])
def test_one_of_many_inputs_that_cannot_be_stored_fails_the_attempt(configure, number):
    @work(name="attempts.many_children", retry=ONCE)
    def many_children(ctx: Context):
        return ctx.queue([add(a=object(), b=0), *(add(a=n, b=0) for n in range(number - 1))])

    asked: list[str] = []
    configure(ON_FAILURE=lambda error, info: asked.append(type(error).__name__))
    handle = enqueue(many_children())
    with running_worker(concurrency=2, exclude_types=["shop.add"]):
        state = ended(handle)
    assert (state.status, state.reason) == ("dead", "exhausted")
    assert not Work.objects.filter(type="shop.add").exists()
    assert "the input of 'shop.add' cannot be stored" in state.error
    assert asked == ["NotEncodable"]
    assert isinstance(perform(many_children()).error, NotEncodable)
