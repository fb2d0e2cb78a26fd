"""The attributes that log records get from the attempt that wrote them."""

import logging
import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from django_ayework import Context, Retry, enqueue, work
from django_ayework.logs import WorkContextFilter, bound
from django_ayework.testing import drain, perform, running_worker
from tests.app.models import Order
from tests.attempts.conftest import ended
from tests.attempts.forms import awaited
from tests.marks import each_database

pytestmark = [pytest.mark.django_db, pytest.mark.vendors("sqlite")]
logger = logging.getLogger("tests.attempts")
NAMES = ("work_id", "work_type", "work_attempt", "work_group", "work_context")


class Kept(logging.Handler):
    """Keeps what records say."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(WorkContextFilter())
        self.emit = self.records.append  # type: ignore[method-assign]

    def seen(self, message: str = "here") -> list[dict[str, Any]]:
        """The work's attributes of the records with this message."""
        records = [record for record in self.records if record.getMessage() == message]
        return [{name: getattr(record, name) for name in NAMES} for record in records]


@pytest.fixture
def kept():
    handler = Kept()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def declare(function: Any, **options: Any) -> Any:
    return work(**{"name": "attempts.case", "retry": Retry(attempts=1), **options})(function)


def queue(function: Any, *arguments: Any, **options: Any) -> Any:
    """Queue and run a work of this handler."""
    handle = enqueue(declare(function, **options)(*arguments))
    drain()
    return handle


def logs(order_id: int = 0, password: str = "") -> None:
    logger.warning("here")


def attributes(handle: Any, context: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(NAMES, (handle.id, "attempts.case", 1, handle.group_id, context), strict=True))


def of_order(input: Any, type: str) -> dict[str, Any]:
    return {"order": input["order_id"], "of": type}


def of_order_and_database(input: Any, type: str) -> dict[str, Any]:
    return {"order": input["order_id"], "rows": Order.objects.count()}


both = pytest.mark.parametrize("function", [logs, awaited(logs)], ids=["plain", "async"])


@both
def test_records_have_the_work_and_the_context(kept, configure, function):
    configure(LOG_CONTEXT=lambda input, type: {"tenant": "t-1", "of": "settings"})
    handle = queue(function, 7, log_context=of_order)
    assert kept.seen() == [attributes(handle, {"tenant": "t-1", "of": "attempts.case", "order": 7})]
    [record] = [record for record in kept.records if record.getMessage() == "here"]
    assert (record.order, record.tenant) == (7, "t-1")
    kept.records.clear()
    assert perform(declare(function, log_context=of_order)(order_id=3)).error is None
    assert kept.seen()[0]["work_context"] == {"tenant": "t-1", "order": 3, "of": "attempts.case"}


@each_database
@pytest.mark.django_db(transaction=True)
@both
def test_records_of_a_worker_have_their_own_work_and_hooks_may_query(kept, configure, reported, function):
    configure(LOG_CONTEXT=f"{__name__}.of_order_and_database")
    declared = declare(function)
    handles = [enqueue(declared(order_id=number)) for number in range(3)]
    with running_worker(concurrency=1):
        assert [ended(handle).status for handle in handles] == ["success"] * 3
    contexts = {one["work_id"]: one["work_context"] for one in kept.seen()}
    assert contexts == {handle.id: {"order": number, "rows": 0} for number, handle in enumerate(handles)}
    assert not reported


def test_outside_of_an_attempt_the_attributes_are_empty(kept):
    with bound(step=1):
        logger.warning("here")
    assert kept.seen() == [{**dict.fromkeys(NAMES), "work_context": {}}]
    text = "%(work_id)s %(work_type)s %(work_attempt)s %(work_group)s %(work_context)s %(message)s"
    assert logging.Formatter(text).format(kept.records[0]) == "None None None None {} here"


def test_a_record_keeps_its_own_attributes(kept):
    def careless(ctx: Context) -> None:
        logger.warning("here", extra={"order": "its own"})

    given = {"order": 1, "msg": "forged", "message": "forged", "levelname": "forged", "work_id": "forged"}
    handle = queue(careless, log_context=lambda input, type: given)
    [record] = [record for record in kept.records if record.getMessage() == "here"]
    assert (record.order, record.levelname) == ("its own", "WARNING")
    assert getattr(record, "message", "here") == "here"
    assert kept.seen() == [attributes(handle, given)]


def test_it_is_passed_to_threads_and_loops_of_asgiref_and_to_no_other_thread(kept):
    async def everywhere() -> None:
        await sync_to_async(logger.warning)("here")
        await sync_to_async(logger.warning, thread_sensitive=False)("here")

    def from_plain() -> None:
        async_to_sync(everywhere)()
        logger.warning("here")
        thread = threading.Thread(target=logger.warning, args=("elsewhere",))
        thread.start()
        thread.join()

    for function in (everywhere, from_plain):
        kept.records.clear()
        handle = queue(function)
        assert {seen["work_id"] for seen in kept.seen()} == {handle.id}
    assert kept.seen("elsewhere")[0]["work_id"] is None


def bind_attempt(ctx: Context, call_next: Any) -> Any:
    """An example of the guide."""
    with bound(parent=ctx.parent, order="of the middleware"):
        return call_next()


async def abind_attempt(ctx: Context, call_next: Any) -> Any:
    with bound(parent=ctx.parent, order="of the middleware"):
        return await call_next()


@both
@pytest.mark.parametrize("middleware", [bind_attempt, abind_attempt])
def test_a_middleware_may_bind_more(kept, function, middleware):
    queue(function, 7, log_context=of_order, middleware=[middleware])
    bound_by_it = {"order": "of the middleware", "of": "attempts.case", "parent": None}
    assert kept.seen()[0]["work_context"] == bound_by_it


def test_a_bound_value_is_removed_after_the_block(kept):
    def binds() -> None:
        with bound(step=1):
            logger.warning("inside")
        logger.warning("after")

    queue(binds, log_context=lambda input, type: None)
    assert kept.seen("inside")[0]["work_context"] == {"step": 1}
    assert kept.seen("after")[0]["work_context"] == {}


def refuses(input: Any, type: str) -> Any:
    raise LookupError("no context today")


def takes_nothing() -> None: ...


A_TEXT = "expected log_context to answer with a mapping of names to values, got: 'order 7'."


@both
@pytest.mark.parametrize(
    ("hook", "error"),
    [
        (refuses, "no context today"),
        (lambda input, type: "order 7", A_TEXT),
        (f"{__name__}.no_such_hook", 'does not define a "no_such_hook" attribute/class'),
        (f"{__name__}.takes_nothing", "takes 0 positional arguments but 2 were given"),
        (lambda input, type: None, ""),
    ],
    ids=["raises", "text", "missing", "arguments", "none"],
)
def test_a_hook_that_fails_is_reported_and_the_work_is_done(kept, configure, reported, function, hook, error):
    configure(LOG_CONTEXT=lambda input, type: {"tenant": "t-1"})
    handle = queue(function, 7, log_context=hook)
    assert handle.state().status == "success"
    assert kept.seen()[0]["work_context"] == {"tenant": "t-1"}
    assert [phase for _, phase in reported] == (["hook"] if error else [])
    assert all(error in text for text, _ in reported)


def test_a_hook_neither_gets_redacted_values_nor_changes_the_input(kept):
    def all_of_it(input: Any, type: str) -> Any:
        given = dict(input)
        input["order_id"] = "changed"
        return given

    def handler(order_id: int, password: str) -> list[Any]:
        logger.warning("here")
        return [order_id, password]

    handle = queue(handler, 7, "s3cret", log_context=all_of_it, redact=["password"])
    assert kept.seen()[0]["work_context"] == {"order_id": 7, "password": "••••"}
    assert handle.result(timeout=0) == [7, "s3cret"]
