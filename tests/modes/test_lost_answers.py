"""The connection dies at a COMMIT: the database is asked what became of it before anybody is blamed."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, connections, transaction

from django_ayework import Context, Retry, enqueue, enqueue_many, signals, work
from django_ayework.models import Attempt
from django_ayework.testing import running_worker
from tests.modes.works import note, notes
from tests.processes import eventually
from tests.worker.conftest import proxy  # noqa: F401

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("postgresql", "mysql")]
TWICE = Retry(attempts=2, base=0, jitter=0)
MARKER = b"complete 1"


@pytest.fixture
def line(proxy, monkeypatch):  # noqa: F811
    """Let every connection that a thread opens from now on go through the proxy."""
    connection.ensure_connection()  # the test's own does not
    config = connections.settings[connection.alias]
    monkeypatch.setitem(config, "HOST", "127.0.0.1")
    monkeypatch.setitem(config, "PORT", proxy.port)
    return proxy


@pytest.fixture
def told():
    """What receivers are told: the signal's name, and the id."""
    told: list[tuple[str, str]] = []
    receivers = {
        signal: lambda sender, work, kind=name, **kwargs: told.append((kind, work.id))
        for name, signal in (("succeeded", signals.work_succeeded), ("failed", signals.work_failed))
    }
    for signal, receiver in receivers.items():
        signal.connect(receiver)
    yield told
    for signal, receiver in receivers.items():
        signal.disconnect(receiver)


called: list[str] = []


def act(ctx: Context) -> str:
    note(ctx, "complete")
    transaction.on_commit(lambda: called.append(ctx.id))
    return f"attempt {ctx.attempt}"


def atomically(ctx: Context):
    return act(ctx)


def in_complete(ctx: Context):
    with ctx.complete():
        return act(ctx)


async def in_acomplete(ctx: Context):
    return await ctx.acomplete(lambda: act(ctx))


@pytest.fixture(params=[atomically, in_complete, in_acomplete], ids=lambda value: value.__name__)
def case(request, undeclared):
    called.clear()
    return work(name="modes.case", retry=TWICE, atomic=request.param is atomically)(request.param)


def test_a_commit_whose_answer_is_lost_is_a_success(case, line, told):
    line.lose_answer(MARKER)
    with running_worker(concurrency=1):
        handle = enqueue(case())
        assert handle.result(timeout=20) == "attempt 1"
        eventually(lambda: told)
    assert (line.lost, notes(), Attempt.objects.count()) == (1, ["complete 1"], 0)
    assert (told, called) == ([("succeeded", handle.id)], [handle.id])


def test_a_commit_that_never_arrived_is_a_failure(case, line, told):
    line.lose_commit(MARKER)
    with running_worker(concurrency=1):
        handle = enqueue(case())
        assert handle.result(timeout=20) == "attempt 2"
        eventually(lambda: len(told) == 2)
    assert (line.lost, notes()) == (1, ["complete 2"])
    assert Attempt.objects.get().error.startswith("OperationalError")
    assert (told, called) == ([("failed", handle.id), ("succeeded", handle.id)], [handle.id])


def test_an_answer_that_is_lost_with_the_database_is_waited_for(case, line, told):
    line.lose_answer(MARKER, cut=True)
    with running_worker(concurrency=1):
        handle = enqueue(case())
        eventually(lambda: line.refused >= 3)
        line.mend()
        assert handle.result(timeout=20) == "attempt 1"
        eventually(lambda: told)
    assert (notes(), Attempt.objects.count()) == (["complete 1"], 0)
    assert (told, called) == ([("succeeded", handle.id)], [handle.id])


@pytest.mark.parametrize("lose", ["answer", "commit"])
@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_what_the_settling_thread_has_settled_is_told_once(lose, outcome, line, told, undeclared, caplog):
    """Several works in one transaction: all of them are told of, and none of them twice."""
    go = threading.Event()

    def ends(number: int) -> str:
        go.wait(20)
        if outcome == "failed":
            raise RuntimeError("complete 1")
        return "complete 1"

    type_ = work(name="modes.case", retry=Retry(attempts=1))(ends)
    (line.lose_answer if lose == "answer" else line.lose_commit)(MARKER)
    with running_worker(concurrency=5):
        handles = enqueue_many([type_(number=number) for number in range(5)])
        go.set()
        eventually(lambda: len(told) >= 5)
        eventually(lambda: all(handle.state().ended_at for handle in handles))
    assert line.lost == 1
    assert sorted(told) == sorted((outcome, handle.id) for handle in handles)
    assert "came too late" not in caplog.text
    assert Attempt.objects.count() == (5 if outcome == "failed" else 0)
