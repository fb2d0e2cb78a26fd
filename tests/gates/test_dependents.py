"""What a released work had waited for is read by handlers that ask for it, and by no others."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, dependency, enqueue, enqueue_many, get_handle, work
from django_ayework.models import Edge, Work
from django_ayework.testing import drain, running_worker
from tests.app.works import add
from tests.processes import eventually

pytestmark = pytest.mark.django_db


def asks(ctx: Context):
    return [ctx.dependents, ctx.dependents]


async def asks_async(ctx: Context):
    return [ctx.dependents, ctx.dependents]


def asks_not(ctx: Context):
    return [(), ()]


def gets_no_context():
    return [(), ()]


async def async_middleware(ctx, call_next):
    ids = list(ctx.dependents)
    await call_next()
    return [ids, list(ctx.dependents)]


#: Handlers, the options of their types, and whether they ask.
KINDS = {
    "asks": (asks, {}, True),
    "asks_async": (asks_async, {}, True),
    "asks_atomic": (asks, {"atomic": True}, True),
    "asks_not": (asks_not, {}, False),
    "no_context": (gets_no_context, {}, False),
    "async_middleware": (lambda: None, {"middleware": [async_middleware]}, True),
}


def released(kind: str):
    """Queue a work of this kind behind three others; return their ids, its own, and what it is to return."""
    handler, options, has_asked = KINDS[kind]
    watched = [handle.id for handle in enqueue_many([add(a=number, b=1) for number in range(3)])]
    child = work(name=f"gates.{kind}", **options)(handler)()
    enqueue(dependency(on=watched, queue=[child]))
    return watched, child.id, [watched, watched] if has_asked else [[], []]


def result_of(id):
    eventually(lambda: Work.objects.filter(id=id).exists())
    return [list(ids) for ids in get_handle(id).result(timeout=20)]


@pytest.mark.django_db(transaction=True)
def test_handlers_in_a_worker_see_the_ids_in_order():
    cases = {kind: released(kind) for kind in KINDS}
    with running_worker(concurrency=2):
        for kind, (_, child, expected) in cases.items():
            assert result_of(child) == expected, kind


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_read_once_by_handlers_that_ask(kind):
    _, child, expected = released(kind)
    with CaptureQueriesContext(connection) as captured:
        drain()
    assert result_of(child) == expected
    statements = [each["sql"] for each in captured if Edge._meta.db_table in each["sql"]]
    reads = [sql for sql in statements if "position" in sql and "LIMIT" not in sql and "SELECT" in sql[:6]]
    by_drain = 1  # which reads the state of what it has run
    assert len(reads) == by_drain + (expected != [[], []]), reads


@pytest.mark.django_db(transaction=True)
def test_accept_is_shown_them(settings):
    shown = {}
    settings.AYEWORK = {
        "POLL_INTERVAL": 0.05,
        "ACCEPT": lambda state: shown.setdefault(state.id, (state.type, state.dependents)) or True,
    }
    ids, child, _ = released("no_context")
    with running_worker():
        result_of(child)
    assert shown[child] == ("gates.no_context", tuple(ids))
