"""What comes with and after the commit of an attempt's own transaction."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from django_ayework import Context, Retry, enqueue, signals, work
from django_ayework.models import Attempt
from django_ayework.testing import running_worker
from tests.app.models import Order
from tests.modes.works import note, notes

pytestmark = pytest.mark.django_db(transaction=True)
ONCE = Retry(attempts=1)


def writes_atomically(ctx: Context):
    act(ctx)


def writes_in_complete(ctx: Context):
    with ctx.complete():
        act(ctx)


async def writes_in_acomplete(ctx: Context):
    await ctx.acomplete(lambda: act(ctx))


def act(ctx: Context) -> None:
    note(ctx, "complete")
    ctx.progress(2, 3)
    transaction.on_commit(callback)


def callback() -> None:
    raise RuntimeError("after the commit")


KINDS = [(writes_atomically, True), (writes_in_complete, False), (writes_in_acomplete, False)]
each_kind = pytest.mark.parametrize(
    ("handler", "atomic"), KINDS, ids=lambda value: getattr(value, "__name__", "")
)


@each_kind
def test_a_callback_that_raises_is_reported_and_undoes_nothing(handler, atomic, settings):
    reported: list[str] = []
    settings.AYEWORK = {"ON_ERROR": lambda error, phase: reported.append(str(error))}
    handle = enqueue(work(name="modes.case", retry=ONCE, atomic=atomic)(handler)())
    with running_worker(burst=True):
        handle.result(timeout=20)
    assert (handle.state().status, Attempt.objects.count()) == ("success", 0)
    assert (notes(), reported) == (["complete 1"], ["after the commit"])


@each_kind
def test_a_callback_that_raises_keeps_nobody_from_hearing_of_the_success(handler, atomic, monkeypatch):
    heard: list[str] = []

    def hear(sender, work, **kwargs):
        heard.append(work.id)

    def raise_and_go_on() -> None:
        transaction.on_commit(lambda: heard.append("behind it"))
        raise SystemExit("after the commit")

    def act(ctx: Context) -> None:
        transaction.on_commit(raise_and_go_on)
        transaction.on_commit(lambda: heard.append("the next"))

    monkeypatch.setattr("tests.modes.test_aftermath.act", act)
    handle = enqueue(work(name="modes.case", retry=ONCE, atomic=atomic)(handler)())
    signals.work_succeeded.connect(hear)
    try:
        with running_worker(burst=True) as worker:
            worker._thread.join(20)
    finally:
        signals.work_succeeded.disconnect(hear)
    assert heard == ["behind it", "the next", handle.id]


@each_kind
def test_the_last_progress_is_kept(handler, atomic, monkeypatch):
    monkeypatch.setattr("tests.modes.test_aftermath.callback", lambda: None)
    handle = enqueue(work(name="modes.case", retry=ONCE, atomic=atomic)(handler)())
    with running_worker():
        handle.result(timeout=20)
    assert handle.state().progress == {"done": 2, "total": 3, "note": ""}


@pytest.mark.vendors("postgresql")
@each_kind
def test_what_the_database_refuses_at_the_commit_fails_the_attempt(handler, atomic, monkeypatch):
    """A constraint that is deferred is looked at when the transaction commits."""

    def duplicate(ctx: Context) -> None:
        note(ctx, "complete")
        note(ctx, "complete")

    monkeypatch.setattr("tests.modes.test_aftermath.act", duplicate)
    table, name = Order._meta.db_table, "modes_once"
    with connection.cursor() as cursor:
        cursor.execute(
            f"ALTER TABLE {table} ADD CONSTRAINT {name} UNIQUE (reference) DEFERRABLE INITIALLY DEFERRED"
        )
    try:
        handle = enqueue(work(name="modes.case", retry=ONCE, atomic=atomic)(handler)())
        with running_worker(burst=True) as worker:
            worker._thread.join(20)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    state = handle.state()
    assert (state.status, state.reason, notes()) == ("dead", "exhausted", [])
    assert state.error.startswith(IntegrityError.__name__)
