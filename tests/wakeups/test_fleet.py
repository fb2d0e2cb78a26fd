"""A fleet does not stampede: a message wakes a few workers, the others only if the works are still there."""

import pytest

from django_ayework import enqueue, enqueue_many
from django_ayework.flow.notify import sender
from django_ayework.models import WorkerProcess
from django_ayework.rules.controls import Scope
from django_ayework.rules.notifications import Due, due_to_text
from django_ayework.testing import now
from django_ayework.worker.health import WorkerRegistration
from tests.app.works import add
from tests.claiming import claimer_of
from tests.marks import each_database
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendors("sqlite")]
#: Longer than the last of a hundred workers waits, in seconds.
LONG = 1.0


class Idler:
    """An idle worker of another process, as far as its waking goes: no threads, no slots."""

    def __init__(self, number, queues=()):
        self.claimer = claimer_of(Scope(queues), f"worker-{number:03}")
        self.wake, self.waking = self.claimer.wake, self.claimer.wake_ups
        WorkerRegistration(self.claimer.worker_id, "", queues, 8).beat(0)
        self.waking.open(lambda ids: None)

    def meet_others(self):
        """Read who is alive now."""
        self.waking._read_at = float("-inf")
        self.claimer.claim(0)
        self.wake.clear()

    def reset(self):
        self.waking.take()
        self.wake.clear()

    def work(self):
        """Claim as the loop does, and answer; return how many works that were."""
        self.wake.clear()
        claimed = self.claimer.claim(8)
        self.waking.answer(claimed, self.claimer.left)
        return len(claimed)


@pytest.fixture
def fleet(carrier):
    """Makes idle workers that know one another, and hear one carrier."""
    idlers = []
    carrier.is_live = True

    def of(count, queues=()):
        first = len(idlers)
        idlers.extend(Idler(first + number, queues) for number in range(count))
        for idler in idlers:
            idler.meet_others()
        return idlers[first:]

    yield of
    for idler in idlers:
        idler.waking.close()


def publish_due(carrier, works=1, number=0):
    """Let all hear that works have become due by a commit elsewhere."""
    due = Due(frozenset({("default", "shop.add")}), works=works)
    carrier.deliver("due", due_to_text(due, "elsewhere", number))


def woken(idlers):
    return [idler for idler in idlers if idler.wake.is_set()]


def reset(carrier, idlers):
    """Forget all messages."""
    carrier.sent.clear()
    for idler in idlers:
        idler.reset()


@pytest.mark.parametrize(("count", "at_once"), [(1, 1), (2, 2), (3, 2), (60, 2)])
def test_one_work_wakes_two_workers_however_many_there_are(carrier, fleet, count, at_once):
    fleet(20, queues=("mail",))  # not counted
    idlers = fleet(count, queues=("default",))
    for number in range(3):
        publish_due(carrier, number=number)
        assert len(woken(idlers)) == at_once
        reset(carrier, idlers)
    if count == 2:
        publish_due(carrier)
        for idler in idlers:
            idler.work()
        assert carrier.sent == [], "two workers need no answer"


def test_several_works_wake_a_worker_each_and_one_more(carrier, fleet):
    idlers = fleet(12)
    publish_due(carrier, works=5)
    assert len(woken(idlers)) == 6
    publish_due(carrier, works=1000)
    assert len(woken(idlers)) == 12
    idlers = fleet(6)
    reset(carrier, idlers)
    for number in range(120):  # messages wake different workers
        publish_due(carrier, number=number)
    assert len(woken(idlers)) == 6


def test_the_number_of_due_works_is_published(carrier, unhurried):
    enqueue(add(a=1, b=2))
    enqueue_many([add(a=1, b=2) for _ in range(7)])
    assert [due.works for due in carrier.received("due")] == [1, 7]
    carrier.is_quick = False
    carrier.hang()
    enqueue(add(a=1, b=2))
    eventually(lambda: carrier.tries == 3)
    for _ in range(4):
        enqueue(add(a=1, b=2))
    carrier.open()
    eventually(lambda: len(carrier.received("due")) == 4)
    assert [due.works for due in carrier.received("due")[2:]] == [1, 4], "pending works are counted together"


def test_the_others_look_step_by_step_while_nobody_has_taken_the_work(carrier, fleet):
    idlers = fleet(12)
    publish_due(carrier)
    for text in ("", "scribble", '["elsewhere",null]', '["elsewhere",["x"]]'):
        carrier.deliver("answered", text)  # makes no sense, and drops nothing
    counts = [len(woken(idlers))]
    for seconds in sorted({seconds for seconds, _ in carrier.calls}):
        carrier.pass_time(seconds)
        counts.append(len(woken(idlers)))
    assert counts == [2, 4, 8, 12]


@each_database
def test_the_others_do_not_look_once_the_work_is_taken(carrier, fleet):
    idlers = fleet(12)
    sender.origin, own = "elsewhere", sender.origin  # so that the work is no news to this process
    enqueue(add(a=1, b=2))
    sender.origin = own
    reset(carrier, idlers)
    publish_due(carrier)
    assert sum(idler.work() for idler in woken(idlers)) == 1
    [(channel, answer)] = carrier.sent
    assert channel == "answered"
    carrier.deliver("answered", answer.replace(own, "elsewhere"))
    carrier.pass_time(LONG)
    assert woken(idlers) == []


@each_database
def test_an_answer_of_a_worker_of_another_queue_stops_nobody(carrier, fleet):
    """Another schema of the database has the same channels, and so has another project on a Redis server."""
    strangers = fleet(6)
    publish_due(carrier)
    assert sum(idler.work() for idler in woken(strangers)) == 0
    [(channel, answer)] = carrier.sent
    assert channel == "answered"
    WorkerProcess.objects.all().delete()
    idlers = fleet(12)
    publish_due(carrier)
    carrier.deliver("answered", answer.replace(sender.origin, "elsewhere"))
    carrier.pass_time(LONG)
    assert woken(idlers) == idlers


def test_a_message_whose_works_are_left_is_not_answered(carrier, fleet):
    idlers = fleet(12)
    enqueue_many([add(a=1, b=2) for _ in range(40)])
    reset(carrier, idlers)
    publish_due(carrier, works=40)
    assert len(woken(idlers)) == 12
    assert sum(idler.work() for idler in idlers[:3]) == 24
    assert carrier.sent == []


def test_a_worker_that_finds_what_others_left_looks_at_once_until_it_finds_nothing(carrier, fleet):
    """As the others are frozen, or serve other types."""
    idlers = fleet(12)
    publish_due(carrier)
    [late, *_] = [idler for idler in idlers if not idler.wake.is_set()]
    enqueue(add(a=1, b=2))
    reset(carrier, idlers)
    carrier.pass_time(LONG)
    assert late.work() == 1
    assert [channel for channel, _ in carrier.sent] == ["answered"]
    for number in range(5):
        enqueue(add(a=1, b=2))
        late.reset()
        publish_due(carrier, number=number)
        assert late.wake.is_set()
        assert late.work() == 1
    wakes = []
    for number in range(20):  # for each it waits for its step, once it has looked in vain
        publish_due(carrier, number=number)
        wakes.append(late.wake.is_set())
        assert late.work() == 0
    assert not all(wakes)


def test_the_others_look_later_with_a_carrier_that_makes_no_calls(carrier, fleet):
    carrier.call_later = None
    idlers = fleet(3)
    publish_due(carrier)
    eventually(lambda: len(woken(idlers)) == 3)


@each_database
def test_workers_that_have_stopped_or_were_not_seen_lately_are_not_counted(carrier, fleet):
    last = fleet(20)[-1]
    stopped, unseen = ("worker-000", "worker-009"), ("worker-010", "worker-018")
    WorkerProcess.objects.filter(id__range=stopped).update(stopped_at=now())
    WorkerProcess.objects.filter(id__range=unseen).update(seen_at="2020-01-01T00:00Z")
    last.meet_others()
    for number in range(10):
        publish_due(carrier, number=number)
        assert last.wake.is_set()
        last.reset()
