"""Controls of types and queues: pausing, limits, continuous types, and workers that heed them."""

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, transaction

from django_ayework import (
    Context,
    UnknownWorkType,
    alimit,
    apause,
    aresume,
    enqueue,
    enqueue_many,
    get_handle,
    limit,
    pause,
    registry,
    resume,
    work,
)
from django_ayework.documentation import logged
from django_ayework.errors import ImproperWork, InvalidOption
from django_ayework.flow.controls import current_controls, queue_continuous
from django_ayework.models import Work, WorkControl, WorkerProcess
from django_ayework.signals import worker_started
from django_ayework.testing import drain, now, running_worker
from django_ayework.testing.factories import WorkFactory
from django_ayework.worker import claimer as claimer_module
from django_ayework.worker.worker import Worker
from tests.attempts.conftest import connected
from tests.claiming import claimer_of
from tests.controls.works import RAN, declared, other, plain
from tests.invariants import assert_consistent
from tests.marks import on_sqlite
from tests.processes import eventually, stopped, worker_process
from tests.races.holding import transaction_elsewhere
from tests.races.rivals import race

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quick_polls")]
HOUR = timedelta(hours=1)
with_workers = pytest.mark.django_db(transaction=True)


def limited(**options):
    return partial(limit, "controls.plain", **options)


def test_works_of_a_paused_type_or_queue_wait_and_others_run():
    enqueue(plain())
    enqueue(other())
    pause(type="controls.plain")
    enqueue(plain())
    drain()
    assert RAN == ["other"]
    resume(type="controls.plain")
    with transaction.atomic():
        pause(type="controls.plain")
        transaction.set_rollback(True)
    drain()
    assert RAN == ["other", "plain", "plain"]
    enqueue(plain(label="mail"), queue="mail")
    pause(queue="mail")
    enqueue(other())
    drain()
    assert RAN[3:] == ["other"]
    pause(queue="controls.plain")  # a queue that has the name of a type
    resume(queue="mail")
    drain()
    assert RAN[4:] == ["mail"]


@on_sqlite
@pytest.mark.parametrize("act", [pause, resume])
def test_a_queue_that_is_nearly_one_of_a_types_is_told(act, caplog):
    work(name="t.pause.queued", queue="controls")(lambda: None)
    act(queue="contrlos")
    hint = "No type of work uses the queue 'contrlos'. Did you mean 'controls'?"
    assert caplog.messages == [f"{hint} {logged('queue-name')}"]
    caplog.clear()
    act(queue="controls")
    act(queue="something else")
    assert caplog.messages == []


RANGE = "a whole number from {} to 2147483647"


@on_sqlite
@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (partial(pause), TypeError, "either type= or queue="),
        (partial(resume, type="controls.plain", queue="default"), TypeError, "either type= or queue="),
        (partial(pause, type="controls.plane"), UnknownWorkType, r"Did you mean 'controls\.plain'"),
        (partial(limit, "controls.plane", weight=1), UnknownWorkType, "controls.plane"),
        (partial(pause, type=7), UnknownWorkType, "no work is named 7"),
        (limited(), TypeError, "at least one of max_running=, weight= and priority="),
        (
            limited(max_running=-1),
            InvalidOption,
            f"max_running to be {RANGE.format(0)}, 0 for no limit, got: -1",
        ),
        (limited(max_running=1.5), InvalidOption, "got: 1.5"),
        (limited(weight=0), InvalidOption, f"expected weight to be {RANGE.format(1)}, got: 0"),
        (limited(weight=True), InvalidOption, "got: True"),
        (limited(priority="high"), InvalidOption, "expected priority to be a whole number"),
    ],
)
def test_an_act_that_cannot_be_carried_out_is_refused(act, error, message):
    with pytest.raises(error, match=message):
        act()
    assert WorkControl.objects.count() == 0


def test_a_change_keeps_the_other_values_and_overrules_the_declaration():
    def control(name: str = "controls.plain"):
        found = current_controls().of(name)
        return found.max_running, found.weight, found.priority, found.paused

    limit("controls.plain", max_running=3)
    limit(plain, weight=5)
    pause(type=plain)
    assert control() == (3, 5, 0, True)
    limit("controls.plain", priority=2, max_running=0)
    assert control() == (0, 5, 2, True)
    assert control("controls.declared")[0] == 2
    limit("controls.declared", max_running=0)
    assert control("controls.declared")[0] == 0


@on_sqlite
def test_the_async_functions_do_the_same():
    async_to_sync(apause)(type="controls.plain")
    async_to_sync(alimit)("controls.plain", weight=7)
    assert [row.weight for row in WorkControl.objects.filter(paused=True)] == [7]
    async_to_sync(aresume)(type="controls.plain")
    assert WorkControl.objects.filter(paused=False).count() == 1


@pytest.fixture
def env(process_env):
    return process_env | {"DJANGO_SETTINGS_MODULE": "tests.controls.settings"}


def count(type: str, status: str) -> int:
    return Work.objects.filter(type=type, status=status).count()


@with_workers
@on_sqlite
def test_a_pause_is_heeded_by_a_worker_that_is_busy():
    with running_worker(concurrency=1):
        enqueue(plain()).result(timeout=20)
        pause(type="controls.plain")
        eventually(lambda: WorkControl.objects.filter(paused=True).exists())
        # The pause is seen at a look; from then on nothing of the type is claimed, and the others are.
        enqueue(other()).result(timeout=20)
        handle = enqueue(plain(label="late"))
        enqueue(other(label="second")).result(timeout=20)
        enqueue(other(label="third")).result(timeout=20)
        resume(type="controls.plain")
        handle.result(timeout=20)
    assert RAN == ["plain", "other", "second", "third", "late"]


@with_workers
def test_a_burst_ends_with_works_of_a_paused_type_and_waits_for_those_of_a_limit():
    enqueue(plain())
    enqueue(other())
    enqueue_many([declared() for _ in range(10)])
    pause(type="controls.plain")
    Worker(burst=True, concurrency=4).run()
    assert RAN == ["other"]
    assert count("controls.plain", "pending") == 1
    assert count("controls.declared", "success") == 10


@with_workers
def test_a_limit_holds_among_the_threads_of_a_worker_and_is_changed_meanwhile():
    """Its works are counted although its row was deleted."""
    WorkControl.objects.all().delete()

    def most(number: int) -> int:
        return max(handle.result(timeout=30) for handle in enqueue_many([declared() for _ in range(number)]))

    with running_worker(concurrency=8):
        assert most(20) <= 2
        assert WorkControl.objects.filter(name="controls.declared").count() == 1
        limit("controls.declared", max_running=1)
        eventually(lambda: WorkControl.objects.filter(max_running=1).exists())
        most(1)  # a claim has been made since
        assert most(10) == 1
        limit("controls.declared", max_running=0)
        enqueue(other()).result(timeout=20)
        most(10)
    assert_consistent()


@with_workers
def test_the_first_claim_of_a_worker_heeds_limits_and_pauses(settings):
    """A message names works before the worker has read the controls."""
    settings.AYEWORK = {**settings.AYEWORK, "PUBSUB": "local"}  # others may ask for a poll first
    pause(type="controls.plain")

    def queue(**kwargs: Any) -> None:
        enqueue_many([plain(), *(declared() for _ in range(20))])

    with connected(queue, worker_started), running_worker(concurrency=8):
        eventually(lambda: count("controls.declared", "success") == 20)
    ran = Work.objects.filter(type="controls.declared")
    assert {get_handle(id).result(timeout=0) for id in ran.values_list("id", flat=True)} <= {1, 2}
    assert (count("controls.plain", "pending"), RAN) == (1, [])


@with_workers
def test_two_processes_never_exceed_a_limit(env):
    with worker_process(env) as one, worker_process(env) as another:
        eventually(lambda: WorkerProcess.objects.count() == 2)
        handles = []
        while len(handles) < 80 or len(set(Work.objects.values_list("completed_by", flat=True))) < 2:
            handles += enqueue_many([declared() for _ in range(40)])
            eventually(lambda: not Work.objects.exclude(status="success").exists())
        for process in (one, another):
            stopped(process)
    results = Counter(handle.result(timeout=0) for handle in handles)
    assert set(results) <= {1, 2}, results
    assert_consistent()


@with_workers
def test_weights_divide_what_is_claimed_and_a_type_of_higher_priority_goes_first():
    limit("controls.plain", weight=30)
    limit("controls.other", weight=10)
    enqueue_many([other() for _ in range(80)])
    enqueue_many([plain() for _ in range(80)])
    Worker(burst=True, concurrency=1, max_works=60).run()
    ran = Counter(RAN)
    assert 60 <= ran["plain"] + ran["other"] <= 65
    assert 2 < ran["plain"] / ran["other"] < 4
    RAN.clear()
    limit("controls.plain", priority=1)
    limit("controls.other", weight=1000)
    Worker(burst=True, concurrency=1).run()
    left = ["plain"] * (80 - ran["plain"]) + ["other"] * (80 - ran["other"])
    assert left == RAN, "whatever the age and the weight"


@with_workers
def test_no_more_are_claimed_at_once_than_allowed():
    enqueue_many([plain() for _ in range(5)])
    WorkControl.objects.create(scope="type", name="controls.plain", max_claimed=1, changed_at=now())
    claimer = claimer_of()
    assert [len(claimer.claim(4)) for _ in range(6)] == [1, 1, 1, 1, 1, 0]


@pytest.fixture
def poll():
    """A continuous type, which every worker of this process knows during the test."""

    @work(name="controls.poll", interval=60)
    def poll(ctx: Context) -> None:
        RAN.append(ctx.unit or "")

    yield poll
    registry.unregister("controls.poll")


def throw(error: BaseException) -> Any:
    raise error


@with_workers
class TestContinuous:
    def looked(self, **options) -> int:
        """Let a worker check whether to queue a work. Return the number of works afterwards."""
        Worker(burst=True, **options).run()
        return Work.objects.filter(type="controls.poll").count()

    def test_a_work_is_queued_whenever_none_is_due_or_running_and_the_interval_has_passed(self, poll):
        assert self.looked(exclude_types=["controls.poll"]) == 0, "by those who serve the type"
        assert self.looked() == 1
        [first] = Work.objects.filter(type="controls.poll")
        assert first.status == "success"
        assert [first.unit] == RAN
        assert float(first.unit) == pytest.approx(first.queued_at.timestamp(), abs=5)
        assert self.looked() == 1
        WorkControl.objects.filter(name="controls.poll").update(next_at=now())
        assert self.looked() == 2

    def test_one_that_is_due_or_running_keeps_the_next_from_being_queued(self, poll):
        enqueue(poll(), queue="nobody")
        assert self.looked(queues=["default"]) == 1
        Work.objects.update(status="running", worker="elsewhere", leased_until=now() + HOUR)
        assert self.looked(queues=["default"]) == 1
        Work.objects.update(status="scheduled", worker=None, leased_until=None, run_at=now() + HOUR)
        assert self.looked(queues=["default"]) == 2

    @on_sqlite
    def test_operators_can_stop_it_pause_it_and_change_the_interval(self, poll):
        row = WorkControl(scope="type", name="controls.poll", continuous=False, changed_at=now())
        row.save()
        assert self.looked() == 0
        row.continuous, row.paused = None, True
        row.save()
        assert self.looked() == 0
        row.paused, row.interval = False, 86400
        row.save()
        before = now()
        assert self.looked() == 1
        row.refresh_from_db()
        assert (row.next_at - before).total_seconds() == pytest.approx(86400, abs=600)

    @pytest.fixture
    def raced(self):
        """Continuous types that no worker of this process looks at, one for each round of a race."""
        names = [f"controls.raced{number}" for number in range(8)]
        for name in names:
            work(name=name, interval=60)(lambda: None)
        yield names
        for name in names:
            registry.unregister(name)

    @pytest.mark.races
    def test_workers_that_look_at_once_queue_one(self, raced):
        def look(number: int) -> None:
            queue_continuous({raced[number]: 60.0})

        race(len(raced), look, look, look)
        assert Counter(Work.objects.values_list("type", flat=True)) == Counter(raced)

    @on_sqlite
    def test_some_that_cannot_be_built_keep_no_other_and_no_duty_waiting(self, poll):
        errors = [OperationalError, KeyError, SystemExit]
        broken = [f"controls.broken.{error.__name__}" for error in errors]
        for name, error in zip(broken, errors, strict=True):
            work(name=name, interval=60, options=partial(throw, error("of the project's database")))(
                lambda: None
            )
        lost = {"status": "running", "attempt": 1, "worker": "elsewhere", "leased_until": now() - HOUR}
        WorkFactory(type="controls.plain", input="{}", started_at=now() - HOUR, **lost)
        try:
            with running_worker():
                eventually(lambda: count("controls.poll", "success") == 1)
                eventually(lambda: count("controls.plain", "success") == 1)
        finally:
            for name in broken:
                registry.unregister(name)

    @on_sqlite
    def test_a_type_that_needs_an_input_cannot_be_continuous(self):
        with pytest.raises(ImproperWork, match=r"queued without input, so a, b needs a default"):
            work(name="controls.needs", interval=5)(lambda a, b, c=1, **rest: None)


@with_workers
def test_works_that_a_limit_held_back_are_claimed_once_there_is_room(settings):
    settings.AYEWORK = {"POLL_INTERVAL": 3600}
    enqueue_many([declared() for _ in range(3)], queue="a")
    enqueue_many([plain() for _ in range(9)], queue="b")
    claimer = claimer_of()

    def claimed(number: int) -> Counter[str]:
        return Counter(delivery.row.type for delivery in claimer.claim(number))

    assert claimed(6) == {"controls.declared": 2, "controls.plain": 3}
    assert claimed(2) == {"controls.plain": 2}
    assert not claimer.make_room(["controls.plain"])
    Work.objects.filter(type="controls.declared", status="running").update(status="success", ended_at=now())
    assert claimer.make_room(["controls.declared"])
    assert claimed(2) == {"controls.declared": 1, "controls.plain": 1}


@with_workers
def test_a_work_that_ends_while_others_of_its_type_are_claimed_makes_room_for_them(settings, monkeypatch):
    """The claim has counted it, and finds the limit reached. It may be the last one to end."""
    settings.AYEWORK = {"POLL_INTERVAL": 3600}
    running = [WorkFactory(type="controls.declared", status="running", worker="w") for _ in range(2)]
    waiting = enqueue(declared())
    claimer = claimer_of()
    claim_of, ended = claimer_module.claim_of, list[bool]()

    def claim_late(*given):
        claimed = claim_of(*given)
        Work.objects.filter(id__in=[work.id for work in running]).update(status="success", ended_at=now())
        ended.append(claimer.make_room(["controls.declared"]))
        return claimed

    monkeypatch.setattr(claimer_module, "claim_of", claim_late)
    assert not claimer.claim(2)
    assert ended == [True]
    assert [delivery.row.id for delivery in claimer.claim(2)] == [waiting.id]


@pytest.fixture(params=["a row that exists", "a row of its own"])
def known(request):
    """Whether the controls of the types have rows before a transaction changes them."""
    WorkControl.objects.all().delete()
    if request.param == "a row that exists":
        for name in ("controls.declared", "controls.poll"):
            WorkControl.objects.create(scope="type", name=name, changed_at=now())


@with_workers
@pytest.mark.vendors("postgresql", "mysql")
@pytest.mark.usefixtures("known")
class TestCallersTransactions:
    """A caller changes a control early in a long transaction."""

    @pytest.mark.parametrize(
        "act",
        [partial(pause, type="controls.declared"), partial(limit, "controls.declared", max_running=1)],
        ids=["pause", "limit"],
    )
    def test_works_of_other_types_are_claimed_and_those_of_this_one_once_it_is_over(self, act):
        held = enqueue_many([declared() for _ in range(3)])
        with running_worker(concurrency=4):
            with transaction_elsewhere(act):
                others = enqueue_many([plain() for _ in range(9)], priority=-1)
                others += [enqueue(plain(), queue="another")]
                for handle in others:
                    handle.result(timeout=20)
                held += [enqueue(declared())]
                enqueue(other(), priority=-1).result(timeout=20)
                assert count("controls.declared", "success") < 4
            resume(type="controls.declared")
            assert max(handle.result(timeout=20) for handle in held) <= 2

    def test_a_worker_skips_it_when_it_queues_continuous_works(self, poll):
        with transaction_elsewhere(partial(pause, type="controls.poll")), running_worker():
            enqueue(plain()).result(timeout=20)
            assert count("controls.poll", "success") == 0
        resume(type="controls.poll")
        with running_worker():
            eventually(lambda: count("controls.poll", "success") == 1)
