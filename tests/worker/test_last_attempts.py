"""Last attempts: begun at most once, and not used up by a worker that is lost before they begin."""

import pytest
from django.db import connection

from django_ayework import Worker, enqueue, enqueue_many
from django_ayework.flow.maintenance import reclaim
from django_ayework.models import Attempt, Work
from django_ayework.signals import work_failed
from django_ayework.store.database import clock
from django_ayework.testing import running_worker
from django_ayework.worker import transactions
from tests.marks import each_database, on_servers
from tests.processes import PATIENCE, ended, eventually, worker_process
from tests.races.holding import transaction_elsewhere
from tests.races.rivals import claim_all
from tests.worker.conftest import all_end
from tests.worker.works import once, once_async, once_here, once_together, started

pytestmark = pytest.mark.usefixtures("quick_polls")
MANY = 400


@each_database
def test_a_killed_worker_uses_up_no_last_attempt_that_had_not_begun(short_lease_env, tmp_path):
    """A work whose handler had returned may have been settled or not: it does not run again in any case."""
    handles = enqueue_many([once(place=str(tmp_path), number=n, kills=n == MANY // 2) for n in range(MANY)])
    with worker_process(short_lease_env, "--concurrency", "1") as victim:
        ended(victim)
    begun = [bool(started(tmp_path, number)) for number in range(MANY)]
    claimed = set(Work.objects.filter(status="running").values_list("id", flat=True))
    unstarted = {handle.id for handle, has_begun in zip(handles, begun, strict=True) if not has_begun}
    assert claimed & unstarted, "the worker claims more than it runs"
    eventually(lambda: reclaim() or not Work.objects.filter(status="running").exists())
    Worker(burst=True).run()
    assert [started(tmp_path, number) for number in range(MANY)] == ["1\n"] * MANY
    status = dict(Work.objects.values_list("id", "status"))
    assert status[handles[MANY // 2].id] == "dead"
    assert {id for id, ended_as in status.items() if ended_as != "success"}.isdisjoint(unstarted)


def test_a_last_attempt_that_a_lost_worker_never_began_is_not_recorded_as_a_failure():
    failures: list[object] = []
    work_failed.connect(lambda **told: failures.append(told), weak=False, dispatch_uid="unbegun")
    try:
        handle = enqueue(once_here())
        claim_all(lease=-1)
        assert reclaim() == 1
    finally:
        work_failed.disconnect(dispatch_uid="unbegun")
    state = handle.state()
    assert (state.status, state.attempt) == ("pending", 0)
    assert not failures
    assert not Attempt.objects.exists()
    Worker(burst=True).run()
    assert (handle.state().status, handle.state().attempt) == ("success", 1)


def taken_once(monkeypatch: pytest.MonkeyPatch, chosen: set[str]) -> None:
    """Let leases lapse, and works be reclaimed, when their last attempts are about to begin first."""
    begin = transactions.transitions.begin

    def begin_late(deliveries, worker):
        mine = chosen.intersection(deliveries)
        chosen.difference_update(mine)
        if mine:
            Work.objects.filter(id__in=mine).update(leased_until=clock.now().replace(year=2000))
            assert reclaim(sparing=set(deliveries) - mine) == len(mine)
        return begin(deliveries, worker)

    monkeypatch.setattr(transactions.transitions, "begin", begin_late)


@pytest.mark.parametrize("kind", [once_here, once_async], ids=lambda kind: kind.name)
def test_a_last_attempt_whose_lease_lapsed_before_it_began_runs_for_its_new_holder_alone(
    stage, monkeypatch, kind
):
    handle = enqueue(kind(number=7))
    taken_once(monkeypatch, {handle.id})
    with running_worker(concurrency=1):
        assert handle.result(timeout=PATIENCE) == 7
    assert stage.started == [7]
    assert Work.objects.values_list("delivery", "attempt").get() == (2, 1)


def test_of_a_batch_only_works_that_are_still_held_begin(stage, monkeypatch):
    handles = enqueue_many([once_together(number) for number in range(2)])
    taken_once(monkeypatch, {handles[0].id})
    with running_worker(concurrency=1):
        all_end(handles)
    assert stage.started == [1, 0]
    assert set(Work.objects.values_list("attempt", flat=True)) == {1}


@on_servers
def test_async_works_begin_by_one_session_which_is_replaced_when_it_is_lost(monkeypatch):
    monkeypatch.setattr(transactions, "PUT_OFF_FOR", 0.01)
    sessions: list[object] = []
    begin = transactions.transitions.begin

    def begin_in_session(deliveries, worker):
        connection.ensure_connection()
        sessions.append(connection.connection)
        if len(sessions) == 2:
            connection.connection.close()
        return begin(deliveries, worker)

    monkeypatch.setattr(transactions.transitions, "begin", begin_in_session)
    first = enqueue(once_async(number=1))
    with running_worker(concurrency=20):
        all_end([first])
        all_end(enqueue_many([once_async(number=number) for number in range(20)]))
    assert len({id(session) for session in sessions}) == 2, "a lost one and its successor"


@on_servers
def test_a_slot_does_not_wait_for_a_row_that_another_transaction_holds(stage, monkeypatch, reported):
    """The work runs once the row is free. Meanwhile the slot runs others."""
    monkeypatch.setattr(transactions, "BEGIN_PAUSES", (0.0, 0.01))
    monkeypatch.setattr(transactions, "PUT_OFF_FOR", 0.01)
    begin = transactions.transitions.begin
    waits, other = enqueue(once_here(number=1), priority=1), enqueue(once_here(number=2))
    tries = [waits.id, waits.id]

    def begin_locked(deliveries, worker):
        if tries and tries[0] in deliveries:
            id = tries.pop()
            with transaction_elsewhere(lambda: Work.objects.select_for_update().get(id=id)):
                return begin(deliveries, worker)
        return begin(deliveries, worker)

    monkeypatch.setattr(transactions.transitions, "begin", begin_locked)
    with running_worker(concurrency=1):
        all_end([waits, other])
    assert sorted(stage.started) == [1, 2]
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["deferred"]
    assert reported == [("the row of the work is locked by another transaction", "queue")]
