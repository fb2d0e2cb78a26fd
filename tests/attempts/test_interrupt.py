"""``interrupt=True``: the abort is raised inside a plain handler, and later works are not disturbed."""

import gc
import logging
import random
import threading
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connections

from django_ayework import Aborted, AttemptTimeout, Context, Retry, cancel, enqueue, enqueue_many, work
from django_ayework.compat import set_async_exception
from django_ayework.define.context import AbortReason, AbortSignal
from django_ayework.testing import drain, running_worker
from django_ayework.worker import bounds, interruption
from django_ayework.worker.interruption import Interruption, class_like, handler_frames
from tests.app.models import Order
from tests.attempts import works
from tests.attempts.conftest import ended, while_it_runs
from tests.attempts.works import after, be_busy
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("quick_watch"),
    pytest.mark.vendors("sqlite"),
    # An interruption that lands in a finaliser, as drivers have them, is printed and goes no further.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TIMED_OUT = "AttemptTimeout: the attempt ran longer than its timeout of 60.0 seconds."


@contextmanager
def run_out_of_time(request: Any):
    """Run a work until it is busy, then let its time be over; the next works run in the same thread."""
    with while_it_runs(request) as (handle, worker):
        worker._in_flight.abort({handle.id: AbortReason.TIMEOUT})
        yield handle


def notes() -> list[str]:
    return list(Order.objects.order_by("pk").values_list("reference", flat=True))


def test_an_interruption_that_meets_a_connection_being_opened_is_no_lack_of_a_connection(monkeypatch):
    connect = type(connections["default"]).get_new_connection

    def interrupted(self: Any, params: Any) -> Any:
        if threading.current_thread().name.startswith("ayework-slot"):
            raise AttemptTimeout("the attempt ran longer than its timeout.")
        return connect(self, params)

    monkeypatch.setattr(type(connections["default"]), "get_new_connection", interrupted)
    handle = enqueue(work(name="attempts.case", retry=Retry(attempts=2, base=0.01))(Order.objects.count)())
    with running_worker(concurrency=1):
        eventually(lambda: handle.state().status == "dead")
    assert handle.state().attempt == 2


def test_without_it_a_handler_that_returns_late_succeeds():
    @work(name="attempts.late", timeout=0.01)
    def late(ctx: Context) -> str:
        ctx.signal.wait(works.NEVER_IN_A_TEST)
        return "late"

    handle = enqueue(late())
    with running_worker(concurrency=1):
        assert handle.result(timeout=20) == "late"
    drained = enqueue(work(name="attempts.case", interrupt=True, timeout=1e-6)(lambda: "done")())
    drain()  # which has no thread that could interrupt
    assert drained.state().result == "done"


def test_a_handler_that_catches_it_is_interrupted_again(stage, monkeypatch):
    monkeypatch.setattr(interruption, "AGAIN_AFTER", 0.02)
    with run_out_of_time(works.stubborn()) as handle:
        assert handle.result(timeout=20) == "gave in"
    assert stage.seen == ["again"] * 3


def test_a_middleware_meets_it_as_an_error_of_the_handler(stage):
    def tell(ctx, call_next):
        try:
            return call_next()
        except Aborted as error:
            stage.seen.append(f"middleware: {error.reason}")
            raise

    async def atell(ctx, call_next):
        try:
            return await call_next()
        finally:
            stage.seen.append("async middleware")

    declared = work(name="attempts.case", interrupt=True, middleware=[tell, atell])(lambda: be_busy())
    with while_it_runs(declared()) as (handle, _):
        cancel(handle.id)
        eventually(lambda: len(stage.seen) == 2)
    assert stage.seen == ["async middleware", "middleware: cancelled"]


@each_database
def test_the_next_work_in_the_thread_gets_a_connection_of_its_own(stage):
    with run_out_of_time(works.querying()) as handle:
        assert ended(handle).error == TIMED_OUT
        assert enqueue(after()).result(timeout=20) == "ayework-slot-0"
    first, second = stage.seen
    assert first is not second
    assert first.connection is None or first.closed_in_transaction
    assert notes() == ["after"]


def test_a_handler_that_waited_for_a_lock_leaves_it_free(stage, monkeypatch):
    """In CPython 3.14 an exception may come between taking a lock and the block that frees it."""
    looked_at: list[int] = []

    def frames_of(thread: int) -> Any:
        looked_at.append(thread)
        return handler_frames(thread)

    monkeypatch.setattr(interruption, "handler_frames", frames_of)
    stage.lock.acquire()
    with run_out_of_time(works.locking()) as handle:
        eventually(lambda: looked_at)
        stage.lock.release()
        assert ended(handle).error == TIMED_OUT
        assert stage.lock.acquire(timeout=20)


def test_objects_of_the_handler_are_freed_when_it_has_ended(stage):
    """A session that was just being opened must not wait for a garbage collection."""
    gc.collect()
    gc.disable()
    try:
        with run_out_of_time(works.holding()) as handle:
            assert ended(handle).error == TIMED_OUT
            eventually(lambda: stage.seen[0]() is None)
    finally:
        gc.enable()


@each_database
@pytest.mark.parametrize(
    ("type_", "result", "kept"),
    [
        (works.catches, "caught", ["caught", "after"]),
        (works.catches_in_transaction, None, ["after"]),  # its transaction may be incomplete
        (works.staged, None, ["prepared", "after"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_an_interrupted_transaction_is_undone_even_if_the_handler_catches_it(type_, result, kept):
    with run_out_of_time(type_()) as handle:
        state = ended(handle)
        enqueue(after()).result(timeout=20)
    assert (state.result, state.error) == (result, None if result else TIMED_OUT)
    assert notes() == kept


@each_database
@pytest.mark.races
def test_works_that_are_interrupted_anywhere_disturb_no_other(monkeypatch):
    """Exactly what the works committed is there, and their threads go on."""
    monkeypatch.setattr(bounds, "CHECK_EVERY", 0.0005)
    shuffled = random.Random(7)
    handles = enqueue_many([works.for_a_while(turns=shuffled.randrange(6)) for _ in range(100)])
    with running_worker(concurrency=3):
        states = [ended(handle) for handle in handles]
        assert enqueue(after()).result(timeout=20).startswith("ayework-slot-")
    succeeded = [state for state in states if state.status == "success"]
    errors = {state.error for state in states if state.status == "dead"}
    assert errors == {"AttemptTimeout: the attempt ran longer than its timeout of 1e-06 seconds."}
    assert len(succeeded) < 100
    ended_ones = [note for note in notes() if note.startswith("ended")]
    assert len(succeeded) <= len(ended_ones) <= 100
    assert "half" not in notes()


@pytest.fixture
def interrupted() -> Interruption:
    """The interruption of a handler whose work was cancelled."""
    signal = AbortSignal()
    signal.abort(AbortReason.CANCELLED)
    return Interruption(signal, lambda: Aborted("cancelled", id="w"))


def call_and_interrupt(interrupted: Interruption, handler: Any) -> Any:
    """Call a handler while another thread interrupts it all the time."""
    over = threading.Event()

    def interrupt() -> None:
        while not over.is_set():
            interrupted.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        return interrupted.call(handler)
    finally:
        over.set()
        thread.join()


def test_the_exception_is_like_the_error_it_stands_for(interrupted):
    with pytest.raises(Aborted) as raised:
        call_and_interrupt(interrupted, be_busy)
    assert (raised.value.reason, raised.value.id) == ("cancelled", "w")
    assert str(raised.value) == "The attempt was asked to stop: cancelled."
    assert type(raised.value).__name__ == "Aborted"


def test_nothing_comes_before_the_handler_or_after_it(interrupted):
    interrupted.interrupt()
    assert interrupted.call(lambda: "done") == "done"
    interrupted.interrupt()
    assert interrupted.arrived is None


@pytest.mark.parametrize(("takes_back", "met"), [(False, Aborted), (True, None)])
def test_what_was_set_can_be_taken_back(takes_back, met):
    """A thread that is blocked outside of Python meets an exception as soon as it is back."""
    trying, held, raised = threading.Event(), threading.Lock(), []

    def blocked() -> None:
        try:
            trying.set()
            with held:  # in CPython 3.14 it stays taken
                len("")
        except Aborted as error:
            raised.append(error)

    thread = threading.Thread(target=blocked)
    with held:
        thread.start()
        eventually(trying.is_set)
        set_async_exception(thread.ident, class_like(Aborted("test"), lambda _: None))
        if takes_back:
            set_async_exception(thread.ident, None)
    thread.join(20)
    assert [type(error).__name__ for error in raised] == ([met.__name__] if met else [])


def test_a_handler_that_saw_raise_if_aborted_is_not_interrupted(interrupted):
    def heeds() -> str:
        try:
            interrupted._signal.raise_if_aborted()
        except Aborted:
            for _ in range(50_000):
                ""
        return "cleaned up"

    assert call_and_interrupt(interrupted, heeds) == "cleaned up"


def test_an_error_that_a_driver_raises_in_its_place_counts_as_the_interruption(interrupted):
    def connects() -> None:
        try:
            be_busy()
        except Aborted as error:
            last = OperationalError(f"failed to resolve host: {error}")
        raise last

    with pytest.raises(Aborted) as raised:
        call_and_interrupt(interrupted, connects)
    assert isinstance(raised.value.__cause__, OperationalError)


def test_an_error_that_a_handler_raises_in_its_place_is_the_handlers(interrupted):
    def objects() -> None:
        try:
            be_busy()
        except Aborted as error:
            raise ValueError("not that again") from error

    with pytest.raises(ValueError, match="not that again"):
        call_and_interrupt(interrupted, objects)


class Lock:
    """Something to hold in a with statement."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def __enter__(self) -> None:
        self.act()

    def __exit__(self, *error: object) -> None:
        self.act()


def test_a_handler_is_not_interrupted_where_it_would_leave_a_lock_taken(interrupted, monkeypatch):
    def careful() -> str:
        logger = logging.Logger("attempts")
        logger.addHandler(handler)
        with Lock(interrupted.interrupt):
            logger.warning("inside")
        return "unharmed"

    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", lambda record: interrupted.interrupt())
    assert interrupted.call(careful) == "unharmed"


def test_patience_with_delicate_places_ends(interrupted, monkeypatch):
    def stuck() -> None:
        with Lock(be_busy):
            pass

    monkeypatch.setattr(interruption, "PATIENCE", 0.01)
    with pytest.raises(Aborted):
        call_and_interrupt(interrupted, stuck)


def test_a_connection_that_cannot_be_closed_is_reported(interrupted, reported, monkeypatch):
    def fail() -> None:
        raise OSError("no such socket")

    with monkeypatch.context() as patched, pytest.raises(Aborted):
        patched.setattr(connections["default"], "close", fail)
        call_and_interrupt(interrupted, be_busy)
    assert reported == [("no such socket", "queue")]
    assert works.stage.started.is_set()
