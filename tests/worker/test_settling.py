"""Settling while something is wrong: outcomes wait for the database, and a bad one spoils no other."""

import logging
import threading
import time
from itertools import pairwise

import pytest
from django.db import DataError, OperationalError, connection
from django.db.backends.signals import connection_created

from django_ayework import Context, Retry, enqueue, enqueue_many, work
from django_ayework.flow.context_services import EngineServices
from django_ayework.flow.settle import Settlement, Success
from django_ayework.models import Attempt, Group, Work
from django_ayework.rules.conditions import Contribution
from django_ayework.store import many_rows
from django_ayework.testing import running_worker
from django_ayework.worker import settler as settler_module
from django_ayework.worker.in_flight import Delivery
from django_ayework.worker.settler import Settler
from tests.attempts.conftest import connected
from tests.marks import on_servers
from tests.processes import PATIENCE, eventually
from tests.races.holding import transaction_elsewhere
from tests.races.rivals import claim_all
from tests.worker.conftest import Flaky, all_end
from tests.worker.works import hold, quick

pytestmark = pytest.mark.usefixtures("quick_polls")
ONCE = Retry(attempts=1)

gathers = work(name="settling.gathers")(lambda: None)


@work(name="settling.outputs_slowly", then="settling.gathers")
def outputs_slowly(ctx: Context) -> None:
    time.sleep(0.1)
    ctx.output(["hot"])


@pytest.fixture
def impatient(monkeypatch):
    """The settler tries again soon."""
    monkeypatch.setattr(settler_module, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(settler_module, "LONGEST_LOCKED_PAUSE", 0.001)


@pytest.fixture
def failing(monkeypatch):
    """Let settling raise an error whenever a bad settlement is among those in hand; the result notes how
    many were in hand each time."""
    settle = settler_module.settle

    def patch(is_bad, error: BaseException) -> list[int]:
        tries: list[int] = []

        def settle_unless_bad(settlements):
            tries.append(len(settlements))
            if any(map(is_bad, settlements)):
                raise error
            return settle(settlements)

        monkeypatch.setattr(settler_module, "settle", settle_unless_bad)
        return tries

    return patch


class Settling:
    """A settler of this process that has taken over the successes of claimed works."""

    def __init__(self, rows, success_of=lambda id: Success()) -> None:
        self.deliveries = [Delivery(row, 30.0) for row in rows]
        self.settled: list[Delivery] = []
        self.settler = Settler(EngineServices(), self.settled.extend)
        for delivery in self.deliveries:
            self.settler.take_over([(delivery, Settlement(delivery.row, success_of(delivery.row.id)))])

    def run(self) -> None:
        """Settle until nothing is left in hand."""
        self.settler.start()
        eventually(lambda: len(self.settled) == len(self.deliveries))
        self.settler.stop(10)


def queue_quick(count: int, **options):
    return enqueue_many([quick(number=number) for number in range(count)], **options)


def claimed(count: int) -> list:
    """The rows of so many works that are claimed."""
    queue_quick(count)
    return list(claim_all().values())


def statuses() -> set[str]:
    return set(Work.objects.values_list("status", flat=True))


class TookTooLong(Exception):
    """What a driver raises when the server ends a statement."""

    sqlstate = "57014"


def timed_out() -> OperationalError:
    error = OperationalError("canceling statement due to statement timeout")
    error.__cause__ = TookTooLong()
    return error


@pytest.mark.parametrize(
    ("answers", "error", "times", "number"),
    [(False, None, 4, 10), (True, timed_out(), 12, 1)],
    ids=["gone", "timed out"],
)
@pytest.mark.usefixtures("impatient")
def test_outcomes_wait_for_a_database_that_goes_away_or_holds_locks_while_settling(
    stage, monkeypatch, answers, error, times, number
):
    monkeypatch.setattr(settler_module, "answers", lambda: answers)
    settle = Flaky(settler_module.settle, times, error)
    monkeypatch.setattr(settler_module, "settle", settle)
    handles = queue_quick(number)
    with running_worker():
        assert [handle.result(timeout=20) for handle in handles] == list(range(number))
    assert settle.left == 0
    assert sorted(stage.started) == list(range(number)), "nothing ran twice"
    assert not Attempt.objects.exists()


@pytest.mark.parametrize("poison", [False, True], ids=["success", "failure"])
def test_an_outcome_is_refused_while_another_worker_holds_the_same_delivery(stage, poison):
    """A server that crashes may lose a claim that it has acknowledged; the next claim has its number."""
    handle = enqueue(hold(poison=poison), retry=ONCE)
    with running_worker():
        eventually(lambda: stage.started)
        Work.objects.filter(id=handle.id).update(worker="other")
        stage.go.set()
    row = Work.objects.get(id=handle.id)
    assert (row.status, row.worker, row.delivery, row.result) == ("running", "other", 1, None)
    assert not Attempt.objects.exists()


def test_one_bad_outcome_among_many_is_found_by_halving(failing):
    rows = claimed(64)
    bad = rows[40].id
    tries = failing(lambda each: each.row.id == bad and each.traceback == "", RuntimeError("a bug"))
    Settling(rows).run()
    assert len(tries) <= 1 + 2 * 6 + 1
    left = Work.objects.exclude(status="success").get()
    assert (left.id, left.error) == (bad, "RuntimeError: a bug")


def test_all_works_whose_append_raises_are_found_at_once(failing):
    """Also when one of them has contributed before: what it contributed is left out."""

    def poison(total):
        raise ArithmeticError(f"poison {total}")

    handles = queue_quick(64, together=True, retry=ONCE)
    add = Contribution(None, append=lambda total: str(int(total or 0) + 1))
    both = (add, Contribution(None, append=poison))
    bad = {handle.id for handle in handles[::3]}
    tries = failing(lambda each: False, RuntimeError("never"))
    rows = claim_all().values()
    Settling(rows, lambda id: Success(contributions=both if id in bad else (add,))).run()
    assert tries == [64, 32, 32]
    assert {work.id for work in Work.objects.filter(status="dead")} == bad
    group = Group.objects.get()
    assert (group.value, group.open, group.dead) == (str(64 - len(bad)), 0, len(bad))
    assert Attempt.objects.filter(error="ArithmeticError: poison 1").count() == 1


def test_a_work_whose_append_spoils_the_transaction_fails_alone(caplog):
    """The functions of the others in its group would fail only because of it. The log shows its traceback."""

    def spoil(total):
        connection.close()

    handles = queue_quick(5, together=True, retry=ONCE)
    bad = handles[2].id
    add = Contribution(None, append=lambda total: str(int(total or 0) + Work.objects.filter(id=bad).count()))
    spoils = Contribution(None, append=spoil)
    Settling(claim_all().values(), lambda id: Success(contributions=(spoils if id == bad else add,))).run()
    assert Work.objects.get(status="dead").id == bad
    group = Group.objects.get()
    assert (group.value, group.open, group.dead) == ("4", 0, 1)
    assert "in require_unspoilt" in caplog.text


def test_a_settler_that_stops_settles_everything_in_hand(monkeypatch):
    """Also when there is more than one batch of it, and when a batch takes more than one statement."""
    monkeypatch.setattr(settler_module, "MAX_BATCH", 20)
    for name in ("CHUNK", "SET"):
        monkeypatch.setattr(many_rows, name, 10)
    settling = Settling(claimed(25))
    settling.settler.start()
    settling.settler.stop(30)
    assert len(settling.settled) == 25
    assert statuses() == {"success"}


@pytest.mark.parametrize(("is_free", "status"), [(True, "success"), (False, "running")])
def test_a_settler_that_stops_tries_an_outcome_that_waits_at_once(monkeypatch, failing, is_free, status):
    """The pause before the next try would outlast the stop. An outcome that is refused again is given up."""
    for name in ("FIRST_LOCKED_PAUSE", "LONGEST_LOCKED_PAUSE"):
        monkeypatch.setattr(settler_module, name, 10 * PATIENCE)
    locked, other = claimed(2)
    stops = threading.Event()
    failing(
        lambda each: each.row.id == locked.id and not (stops.is_set() and is_free),
        OperationalError("database is locked"),
    )
    settling = Settling([locked, other])
    settling.settler.start()
    eventually(lambda: settling.settled)
    stops.set()
    settling.settler.stop(PATIENCE if is_free else 0.0)
    assert settling.settler.has_ended
    assert [Work.objects.get(id=row.id).status for row in (locked, other)] == [status, "success"]


@pytest.mark.vendors("sqlite")
@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_settler_outlives_an_outcome_that_cannot_even_be_recorded_as_a_failure(failing, error):
    rows = claimed(3)
    failing(lambda each: each.row.id == rows[0].id, error)
    settling = Settling(rows)
    settling.run()
    assert settling.deliveries[0].signal.reason == "error"
    assert [Work.objects.get(id=row.id).status for row in rows] == ["running", "success", "success"]


@pytest.mark.parametrize("error", [OperationalError("this row is refused"), timed_out()], ids=str)
@pytest.mark.parametrize("place", [0, 3])
def test_an_outcome_that_a_database_refuses_again_and_again_waits_and_holds_nobody_up(
    stage, impatient, monkeypatch, failing, place, error
):
    """An error that is not about its values may pass, so a success is not turned into a failure."""
    monkeypatch.setattr(settler_module, "LONGEST_LOCKED_PAUSE", 0.05)
    is_over = threading.Event()
    handles = queue_quick(6)
    refused = handles.pop(place)
    failing(lambda each: not is_over.is_set() and each.row.id == refused.id, error)
    with running_worker():
        all_end(handles)
        assert Work.objects.get(id=refused.id).status == "running"
        is_over.set()
        assert refused.result(timeout=20) == place
    assert stage.started.count(place) == 1
    assert not Attempt.objects.exists()


@pytest.mark.vendors("postgresql")
def test_an_outcome_whose_statement_takes_too_long_each_time_is_named_once(failing, impatient, caplog):
    """It may never be written, such as that of a work for which a million others wait."""
    is_over = threading.Event()
    handle = queue_quick(1)[0]
    tries = failing(lambda each: not is_over.is_set(), timed_out())
    with running_worker():
        eventually(lambda: len(tries) > 3)
        is_over.set()
        handle.result(timeout=20)
    named = f"the outcome of work {handle.id} cannot be written yet (commit phase): canceling statement"
    assert caplog.text.count(named) == 1


@pytest.mark.vendors("postgresql")
def test_others_have_as_much_time_as_the_try_of_an_outcome_that_took_too_long(monkeypatch):
    settle, took, tries = settler_module.settle, 0.3, list[tuple[float, float]]()

    def settle_too_long(settlements):
        if len(tries) < 3:
            began = time.monotonic()
            time.sleep(took)
            tries.append((began, time.monotonic()))
            raise timed_out()
        return settle(settlements)

    monkeypatch.setattr(settler_module, "settle", settle_too_long)
    handle = queue_quick(1)[0]
    with running_worker():
        handle.result(timeout=PATIENCE)
    assert all(next[0] - last[1] >= took for last, next in pairwise(tries))


def test_outcomes_are_settled_after_an_error_that_nobody_expects(failing, monkeypatch, caplog):
    """Such as that of a driver, as the connection is closed after an error."""
    errors = [RuntimeError("a bug"), RuntimeError("a bug")]

    def fails_twice(settler, batch, error) -> None:
        raise errors.pop()

    failing(lambda each: errors, OperationalError("away"))
    monkeypatch.setattr(Settler, "_wait_for_database", fails_twice)
    handles = queue_quick(3)
    with running_worker():
        assert [handle.result(timeout=PATIENCE) for handle in handles] == [0, 1, 2]
    assert "settling failed and carries on" in caplog.text


@on_servers
def test_outcomes_that_wait_for_a_row_are_tried_again_while_more_of_them_arrive(monkeypatch):
    monkeypatch.setattr(settler_module, "FIRST_LOCKED_PAUSE", 0.4)
    with running_worker(concurrency=20) as worker:
        with transaction_elsewhere(lambda: enqueue(gathers(), unit="hot", delay=3600)):
            enqueue_many([outputs_slowly() for _ in range(1500)])
            eventually(lambda: worker._settler._set_aside)
        eventually(lambda: Work.objects.filter(type=outputs_slowly.name, status="success").exists())
        assert Work.objects.filter(type=outputs_slowly.name, status="pending").exists()


def test_an_outcome_whose_values_the_database_refuses_fails_alone_with_the_databases_message(failing):
    handles = queue_quick(6, retry=ONCE)
    bad = handles.pop(4)
    error = DataError("value too long for type character varying(9)")
    failing(lambda each: each.row.id == bad.id and isinstance(each.ending, Success), error)
    with running_worker():
        all_end(handles)
        eventually(lambda: bad.state().status == "dead")
    assert bad.state().error == "DataError: value too long for type character varying(9)"


class Away(logging.Handler):
    """A handler of the log whose server is away, and that does not catch the error."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log server is away")


@pytest.mark.vendors("sqlite")
def test_a_log_that_raises_costs_no_outcome_and_ends_no_thread(stage, capsys):
    log, away = logging.getLogger("django_ayework"), Away(logging.WARNING)
    stage.go.set()
    failing = enqueue_many([hold(number=number, poison=True) for number in range(6)], retry=ONCE)
    handles = [*failing, *queue_quick(6)]
    with running_worker(concurrency=4) as worker:
        log.addHandler(away)
        try:
            eventually(lambda: statuses() == {"dead", "success"})
        finally:
            log.removeHandler(away)
        assert worker.lost == ""
    assert [str(handle.state().status) for handle in handles] == ["dead"] * 6 + ["success"] * 6
    assert "the log server is away" in capsys.readouterr().err


@pytest.mark.vendors("sqlite")
def test_a_settler_that_stops_while_it_settles_ends_with_its_last_batch(monkeypatch):
    settle, settler = settler_module.settle, Settling(claimed(1)).settler

    def settle_as_the_worker_stops(settlements):
        settler.request_stop()
        settler.wake.clear()  # as at the beginning of a turn that still had something in hand
        return settle(settlements)

    monkeypatch.setattr(settler_module, "settle", settle_as_the_worker_stops)
    settler.start()
    settler.join(PATIENCE)
    assert settler.has_ended
    assert statuses() == {"success"}


def test_outcomes_that_come_one_after_the_other_are_written_in_one_session():
    openers: list[str] = []

    def note(**more) -> None:
        openers.append(threading.current_thread().name)

    with connected(note, connection_created), running_worker(concurrency=1):
        for number in range(3):
            enqueue(quick(number=number)).result(timeout=20)
    assert openers.count("ayework-settling") == 1
