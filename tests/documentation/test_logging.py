"""The samples of the guides for logging and tracing run, and write what the pages say."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from django_ayework import Retry, enqueue, propagation, work
from django_ayework.logs import WorkContextFilter, bound
from django_ayework.testing import drain, running_worker
from tests.documentation.pages import names, page, python_blocks, table
from tests.fixtures import quick_polls  # noqa: F401
from tests.processes import eventually

pytestmark = pytest.mark.django_db
logger = logging.getLogger("shop.works")


def sample(path: str, says: str) -> dict[str, Any]:
    """Run the first Python sample of a guide that has this text; return its names."""
    line, source = next((line, text) for line, text in python_blocks(page(path)) if says in text)
    found: dict[str, Any] = {"__name__": "sample"}
    exec(compile("\n" * (line - 1) + source, path, "exec"), found)
    return found


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """What handlers of the log write that are configured in the test."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], root.level = before


def configure(says: str, output: io.StringIO) -> logging.StreamHandler[Any]:
    """Configure the log as the sample of the guide that has this text; return its handler."""
    logging.config.dictConfig(sample("operations/logging.md", says)["LOGGING"])
    [handler] = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(output)
    return handler


def fields_of(handle: Any) -> dict[str, Any]:
    of_work = {"work_id": handle.id, "work_type": "shop.charge_order"}
    return of_work | {"work_attempt": 1, "work_group": handle.id}


@pytest.fixture
def charge() -> Any:
    """A work that logs."""

    @work(name="shop.charge_order", retry=Retry(attempts=1))
    def charge_order(order: int = 7) -> None:
        with bound(order=order):
            logger.info("charging")
        if order < 0:
            raise ValueError("no such order")

    return charge_order


def test_the_line_of_the_standard_library(output, charge):
    configure('"line"', output)
    handle = enqueue(charge())
    drain()
    logger.info("outside")
    assert output.getvalue().splitlines() == [
        f"INFO shop.works [shop.charge_order {handle.id} #1] charging",
        "INFO shop.works [None None #None] outside",
    ]


@pytest.fixture
def json_lines(output: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written as JSON."""
    shop, logs = ModuleType("shop"), ModuleType("shop.logs")
    vars(shop)["logs"] = logs
    vars(logs).update(sample("operations/logging.md", "class JSONFormatter"))
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setitem(sys.modules, "shop.logs", logs)
    configure("shop.logs.JSONFormatter", output)
    return output


def test_a_line_of_json_has_the_fields_that_the_page_shows(json_lines, charge):
    handle = enqueue(charge())
    drain()
    [line] = map(json.loads, json_lines.getvalue().splitlines())
    text = page("operations/logging.md").read_text()
    shown = next(json.loads(block) for block in re.findall(r"```json\n(.+?)\n```", text))
    assert list(line) == list(shown)
    assert line | fields_of(handle) | {"order": 7, "message": "charging"} == line


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("quick_polls")
def test_the_record_of_a_failed_attempt_names_the_work_though_it_is_written_later(json_lines, charge):
    with running_worker(concurrency=1):
        handle = enqueue(charge(order=-1))
        eventually(lambda: "is dead" in json_lines.getvalue())
    lines = map(json.loads, json_lines.getvalue().splitlines())
    [line] = [each for each in lines if each["level"] == "ERROR"]
    assert line | {"logger": "django_ayework", **fields_of(handle)} == line


def test_structlog_has_the_same_fields():
    structlog = pytest.importorskip("structlog")
    written: list[Any] = []
    try:
        sample("operations/logging.md", "def add_work")
        *processors, renderer = structlog.get_config()["processors"]
        assert isinstance(renderer, structlog.processors.JSONRenderer)

        def keep(logger: Any, name: str, event: Any) -> Any:
            written.append(dict(event))
            raise structlog.DropEvent

        structlog.configure(processors=[*processors, keep])
        log = structlog.get_logger()

        @work(name="shop.charge_order")
        def handler() -> None:
            with bound(order=7), structlog.contextvars.bound_contextvars(tenant="acme"):
                log.info("charging")

        handle = enqueue(handler())
        drain()
        log.info("outside")
    finally:
        structlog.reset_defaults()
    inside, outside = written
    expected = fields_of(handle) | {"order": 7, "tenant": "acme", "event": "charging", "level": "info"}
    assert inside | expected == inside
    assert set(outside) == {"event", "level", "timestamp"}


def test_the_fields_of_the_page_are_those_of_the_filter():
    record = logging.makeLogRecord({})
    before = set(vars(record))
    WorkContextFilter().filter(record)
    rows = table("operations/logging.md", "What is on each record")
    assert {name for row in rows[:2] for name in names(row[0])} == set(vars(record)) - before


def test_the_filter_for_trace_ids():
    from opentelemetry.sdk.trace import TracerProvider

    with TracerProvider().get_tracer("shop").start_as_current_span("request") as span:
        record = logging.makeLogRecord({})
        assert sample("operations/logging.md", "class TraceFilter")["TraceFilter"]().filter(record)
    assert vars(record)["trace_id"] == format(span.get_span_context().trace_id, "032x")


def test_the_propagator_of_the_guide_takes_the_id_of_a_request_to_log_records(output, charge):
    configure('"line"', output).setFormatter(logging.Formatter("%(request)s %(message)s"))
    found = sample("operations/tracing.md", "class RequestId")
    propagator = found["RequestId"]()
    propagation.register(propagator)
    try:
        token = found["request_id"].set("r-7")
        enqueue(charge())
        found["request_id"].reset(token)
        drain()
    finally:
        propagation.unregister(propagator)
    assert output.getvalue() == "r-7 charging\n"
