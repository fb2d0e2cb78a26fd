"""What log records say of the work whose handler wrote them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from django_ayework import Context, Retry, enqueue, work
from django_ayework.logs import WorkContextFilter, bound
from django_ayework.testing import drain, perform, running_worker
from tests.app.models import Order
from tests.processes import eventually

pytestmark = pytest.mark.django_db
logger = logging.getLogger("tests.attempts")

Said = dict[str, Any]


class Kept(logging.Handler):
    """Keeps what records say."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(WorkContextFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def said(self, message: str = "here") -> list[Said]:
        """The work's attributes of the records with this message."""
        records = [record for record in self.records if record.getMessage() == message]
        names = ("work_id", "work_type", "work_attempt", "work_group", "work_context")
        return [{name: getattr(record, name) for name in names} for record in records]


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def declare(function: Any, **options: Any) -> Any:
    return work(**{"name": "attempts.case", "retry": Retry(attempts=1), **options})(function)


def logs(order_id: int, password: str = "") -> None:
    logger.warning("here")


async def alogs(order_id: int, password: str = "") -> None:
    logger.warning("here")


def of_order(input: Any, type: str) -> Said:
    return {"order": input["order_id"], "of": type}


both = pytest.mark.parametrize("function", [logs, alogs])


# The records


@both
def test_records_tell_the_work_and_the_context(kept, configure, function):
    configure(LOG_CONTEXT=lambda input, type: {"tenant": "t-1", "of": "settings"})
    handle = enqueue(declare(function, log_context=of_order)(order_id=7))
    drain()
    assert kept.said() == [
        {
            "work_id": handle.id,
            "work_type": "attempts.case",
            "work_attempt": 1,
            "work_group": handle.group_id,
            "work_context": {"tenant": "t-1", "of": "attempts.case", "order": 7},
        }
    ]
    [record] = [record for record in kept.records if record.getMessage() == "here"]
    assert (record.order, record.tenant) == (7, "t-1")  # type: ignore[attr-defined]


@pytest.mark.django_db(transaction=True)
@both
def test_so_do_those_of_a_worker_each_of_its_own_work(kept, configure, function):
    configure(LOG_CONTEXT=f"{__name__}.of_order")
    declared = declare(function)
    handles = [enqueue(declared(order_id=number)) for number in range(3)]
    with running_worker(concurrency=1):
        eventually(lambda: all(handle.state().status == "success" for handle in handles))
    said = kept.said()
    assert {one["work_id"]: one["work_context"]["order"] for one in said} == {
        handle.id: number for number, handle in enumerate(handles)
    }


def test_perform_has_them_too(kept):
    assert perform(declare(logs, log_context=of_order)(order_id=3)).error is None
    assert kept.said()[0]["work_context"] == {"order": 3, "of": "attempts.case"}


def test_outside_of_an_attempt_a_format_may_name_them_all(kept):
    logger.warning("here")
    nothing = {"work_id": None, "work_type": None, "work_attempt": None, "work_group": None}
    assert kept.said() == [{**nothing, "work_context": {}}]
    text = "%(work_id)s %(work_type)s %(work_attempt)s %(work_group)s %(work_context)s %(message)s"
    assert logging.Formatter(text).format(kept.records[0]) == "None None None None {} here"


def test_a_record_keeps_what_it_says_itself(kept):
    def careless(ctx: Context) -> None:
        logger.warning("here", extra={"order": "its own"})

    told = {"order": 1, "msg": "forged", "message": "forged", "levelname": "forged", "work_id": "forged"}
    handle = enqueue(declare(careless, log_context=lambda input, type: told)())
    drain()
    [record] = [record for record in kept.records if record.getMessage() == "here"]
    assert (record.order, record.levelname) == ("its own", "WARNING")  # type: ignore[attr-defined]
    assert getattr(record, "message", "here") == "here"
    assert kept.said() == [
        {
            "work_id": handle.id,
            "work_type": "attempts.case",
            "work_attempt": 1,
            "work_group": handle.id,
            "work_context": told,
        }
    ]


# Threads


def test_it_goes_along_to_threads_and_loops_of_asgiref(kept):
    async def everywhere() -> None:
        await sync_to_async(logger.warning)("here")
        await sync_to_async(logger.warning, thread_sensitive=False)("here")

    def from_plain() -> None:
        async_to_sync(everywhere)()
        logger.warning("here")

    for function in (everywhere, from_plain):
        handle = enqueue(declare(function)())
        drain()
        assert {said["work_id"] for said in kept.said()} == {handle.id}
        kept.records.clear()


def test_each_thread_has_its_own(kept):
    def starts_a_thread() -> None:
        thread = threading.Thread(target=logger.warning, args=("elsewhere",))
        thread.start()
        thread.join()

    enqueue(declare(starts_a_thread)())
    drain()
    assert kept.said("elsewhere")[0]["work_id"] is None


# More context


@both
@pytest.mark.parametrize("is_async", [False, True])
def test_a_middleware_may_bind_more(kept, function, is_async):
    """An example of the guide."""

    def bind_attempt(ctx: Context, call_next: Any) -> Any:
        with bound(parent=ctx.parent, order="of the middleware"):
            return call_next()

    async def abind_attempt(ctx: Context, call_next: Any) -> Any:
        with bound(parent=ctx.parent, order="of the middleware"):
            return await call_next()

    middleware = abind_attempt if is_async else bind_attempt
    enqueue(declare(function, log_context=of_order, middleware=[middleware])(order_id=7))
    drain()
    assert kept.said()[0]["work_context"] == {
        "order": "of the middleware",
        "of": "attempts.case",
        "parent": None,
    }


def test_what_is_bound_is_gone_after_the_block(kept):
    def binds() -> None:
        with bound(step=1):
            logger.warning("inside")
        logger.warning("after")

    enqueue(declare(binds)())
    drain()
    assert kept.said("inside")[0]["work_context"] == {"step": 1}
    assert kept.said("after")[0]["work_context"] == {}


def test_binding_outside_of_an_attempt_does_nothing(kept):
    with bound(step=1):
        logger.warning("here")
    assert kept.said()[0]["work_context"] == {}


def from_the_database(input: Any, type: str) -> Said:
    return {"orders": Order.objects.count()}


@pytest.mark.django_db(transaction=True)
@both
def test_a_hook_may_query(kept, configure, reported, function):
    configure(LOG_CONTEXT=from_the_database)
    handle = enqueue(declare(function)(order_id=7))
    with running_worker(concurrency=1):
        eventually(lambda: handle.state().status == "success")
    assert (kept.said()[0]["work_context"], reported) == ({"orders": 0}, [])


# Hooks that fail


def refuses(input: Any, type: str) -> Any:
    raise LookupError("no context today")


def answers_a_text(input: Any, type: str) -> Any:
    return "order 7"


@both
@pytest.mark.parametrize(
    ("hook", "error"),
    [
        (refuses, "no context today"),
        (answers_a_text, "expected log_context to answer with a mapping of names to values, got: 'order 7'."),
        (f"{__name__}.no_such_hook", 'does not define a "no_such_hook" attribute/class'),
        (lambda: {}, "takes 0 positional arguments but 2 were given"),
    ],
)
def test_a_hook_that_fails_is_reported_and_the_work_is_done(kept, configure, reported, function, hook, error):
    configure(LOG_CONTEXT=lambda input, type: {"tenant": "t-1"})
    handle = enqueue(declare(function, log_context=hook)(order_id=7))
    drain()
    assert handle.state().status == "success"
    [(text, phase)] = reported
    assert error in text
    assert phase == "hook"
    assert kept.said()[0]["work_context"] == {"tenant": "t-1"}


def test_a_hook_may_have_nothing_to_say(kept, reported):
    enqueue(declare(logs, log_context=lambda input, type: None)(order_id=7))
    drain()
    assert kept.said()[0]["work_context"] == {}
    assert not reported


def test_a_hook_is_not_shown_what_the_type_redacts_nor_can_it_change_the_input(kept):
    def all_of_it(input: Any, type: str) -> Said:
        told = dict(input)
        input["order_id"] = "changed"
        return told

    seen: list[Any] = []

    def handler(order_id: int, password: str) -> None:
        seen.append((order_id, password))
        logger.warning("here")

    enqueue(declare(handler, log_context=all_of_it, redact=["password"])(order_id=7, password="s3cret"))
    drain()
    assert kept.said()[0]["work_context"] == {"order_id": 7, "password": "••••"}
    assert seen == [(7, "s3cret")]
