"""What a released work had waited for is read by handlers that ask for it, and by no others."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ayework import Context, dependency, enqueue, enqueue_many, get_handle, work
from django_ayework.models import Edge, Work
from django_ayework.testing import drain, running_worker
from tests.app.works import add
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)


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


#: Handlers with the options of their types.
KINDS = {
    "asks": (asks, {}),
    "asks, async": (asks_async, {}),
    "asks, atomic": (asks, {"atomic": True}),
    "asks not": (asks_not, {}),
    "no context": (gets_no_context, {}),
    "async middleware": (lambda: None, {"middleware": [async_middleware]}),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def declared(kind: str, undeclared):
    handler, options = KINDS[kind]
    return work(name="modes.case", **options)(handler)


def released(type_):
    watched = [handle.id for handle in enqueue_many([add(a=number, b=1) for number in range(3)])]
    child = type_()
    enqueue(dependency(on=watched, queue=[child]))
    return watched, child.id


def expected(kind: str, ids: list[str]) -> list[list[str]]:
    return [[], []] if kind in ("asks not", "no context") else [ids, ids]


def result_of(id):
    eventually(lambda: Work.objects.filter(id=id).exists())
    return [list(ids) for ids in get_handle(id).result(timeout=20)]


@each_kind
@pytest.mark.parametrize("in_worker", [True, False], ids=["worker", "drain"])
def test_handlers_see_the_ids_in_order(kind, declared, in_worker):
    ids, child = released(declared)
    with running_worker(concurrency=2) if in_worker else nullcontext():
        if not in_worker:
            drain()
        assert result_of(child) == expected(kind, ids)


@each_kind
def test_they_are_read_once_by_handlers_that_ask(kind, declared):
    released(declared)
    with CaptureQueriesContext(connection) as captured:
        drain()
    statements = [each["sql"] for each in captured if Edge._meta.db_table in each["sql"]]
    reads = [sql for sql in statements if "position" in sql and "LIMIT" not in sql and "SELECT" in sql[:6]]
    by_drain = 1  # which reads the state of what it has run
    assert len(reads) == by_drain + (expected(kind, ["some"]) != [[], []]), reads


def test_accept_is_shown_them(settings, undeclared):
    shown = {}
    settings.AYEWORK = {
        "POLL_INTERVAL": 0.05,
        "ACCEPT": lambda state: shown.setdefault(state.id, (state.type, state.dependents)) or True,
    }
    ids, child = released(work(name="modes.case")(gets_no_context))
    with running_worker():
        result_of(child)
    assert shown[child] == ("modes.case", tuple(ids))
