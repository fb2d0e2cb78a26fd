"""What a released work had waited for is read by handlers that ask for it, and by no others."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, dependency, enqueue, enqueue_many, get_handle, work
from django_ayework.models import Edge, Work
from django_ayework.testing import drain, running_worker
from tests.app.works import add
from tests.fixtures import undeclared  # noqa: F401
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def asks(ctx: Context):
    return [ctx.dependents, ctx.dependents]


async def asks_async(ctx: Context):
    return [ctx.dependents, ctx.dependents]


def asks_atomically(ctx: Context):
    return [ctx.dependents, ctx.dependents]


def asks_not(ctx: Context):
    return [(), ()]


def gets_no_context():
    return [(), ()]


async def async_middleware(ctx, call_next):
    ids = list(ctx.dependents)
    await call_next()
    return [ids, list(ctx.dependents)]


def in_async_middleware():
    return None


KINDS = (asks, asks_async, asks_atomically, asks_not, gets_no_context, in_async_middleware)
each_kind = pytest.mark.parametrize("handler", KINDS)


@pytest.fixture
def declared(handler, undeclared):  # noqa: F811
    return work(
        name="modes.case",
        atomic=handler is asks_atomically,
        middleware=[async_middleware] if handler is in_async_middleware else [],
    )(handler)


def released(type_):
    watched = [handle.id for handle in enqueue_many([add(a=number, b=1) for number in range(3)])]
    child = type_()
    enqueue(dependency(on=watched, queue=[child]))
    return watched, child.id


def expected(handler, ids):
    return [[], []] if handler in (asks_not, gets_no_context) else [ids, ids]


def result_of(id):
    eventually(lambda: Work.objects.filter(id=id).exists())
    return [list(ids) for ids in get_handle(id).result(timeout=20)]


@each_kind
@pytest.mark.parametrize("run", ["worker", "drain"])
def test_handlers_see_the_ids_in_order(handler, declared, run):
    ids, child = released(declared)
    if run == "drain":
        drain()
        assert result_of(child) == expected(handler, ids)
        return
    with running_worker(concurrency=2):
        assert result_of(child) == expected(handler, ids)


@each_kind
def test_they_are_read_once_by_those_who_ask(handler, declared):
    released(declared)
    with CaptureQueriesContext(connection) as captured:
        drain()
    statements = [each["sql"] for each in captured if Edge._meta.db_table in each["sql"]]
    reads = [
        each for each in statements if "position" in each and "LIMIT" not in each and "SELECT" in each[:6]
    ]
    by_drain = 1  # which reads the state of what it has run
    assert len(reads) == by_drain + (0 if handler in (asks_not, gets_no_context) else 1), reads


def test_accept_is_shown_them(settings, undeclared):  # noqa: F811
    shown = {}
    settings.AYEWORK = {
        "POLL_INTERVAL": 0.05,
        "ACCEPT": lambda state: shown.setdefault(state.id, (state.type, state.dependents)) or True,
    }
    ids, child = released(work(name="modes.case")(gets_no_context))
    with running_worker():
        result_of(child)
    assert shown[child] == ("modes.case", tuple(ids))
