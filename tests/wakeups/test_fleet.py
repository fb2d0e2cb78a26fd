"""A fleet does not stampede: a message wakes a few workers, the others only if the works are still there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_ayework import enqueue, enqueue_many
from django_ayework.flow.notify import sender
from django_ayework.models import WorkerProcess
from django_ayework.rules.controls import Scope
from django_ayework.rules.notifications import Due, due_to_text
from django_ayework.testing import now
from django_ayework.worker.claimer import Claimer
from django_ayework.worker.health import WorkerRegistration
from tests.app.works import add
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True)
#: Longer than the last of a hundred workers waits, in seconds.
LONG = 1.0


class Idler:
    """An idle worker of another process, as far as its waking goes: no threads, no slots."""

    def __init__(self, number: int, queues: tuple[str, ...] = ()) -> None:
        self.claimer = Claimer(f"worker-{number:03}", Scope(queues))
        self.wake, self.waking = self.claimer.wake, self.claimer.wake_ups
        WorkerRegistration(self.claimer.worker_id, "", queues, 8).register()
        self.waking.open(lambda ids: None)

    @property
    def is_woken(self) -> bool:
        return self.wake.is_set()

    def work(self) -> int:
        """Claim as the loop does, and answer; return how many works that were."""
        self.wake.clear()
        claimed = self.claimer.claim(8)
        self.waking.answer(claimed, self.claimer.left)
        return len(claimed)


@pytest.fixture
def fleet(carrier: Any) -> Iterator[Callable[..., list[Idler]]]:
    """Makes idle workers that know one another, and hear one carrier."""
    idlers: list[Idler] = []
    carrier.is_live = True

    def of(count: int, queues: tuple[str, ...] = ()) -> list[Idler]:
        first = len(idlers)
        idlers.extend(Idler(first + number, queues) for number in range(count))
        for idler in idlers:
            idler.waking._read_at = float("-inf")
            idler.claimer.claim(0)
            idler.wake.clear()
        return idlers[first:]

    yield of
    for idler in idlers:
        idler.waking.close()


def publish_due(carrier: Any, works: int = 1, queue: str = "default", number: int = 0) -> None:
    """Let all hear that works have become due by a commit elsewhere."""
    due = Due(frozenset({(queue, "shop.add")}), works=works)
    carrier.deliver("due", due_to_text(due, "elsewhere", number))


def woken(idlers: list[Idler]) -> list[Idler]:
    return [idler for idler in idlers if idler.is_woken]


def reset(idlers: list[Idler]) -> None:
    for idler in idlers:
        idler.waking.take()
        idler.wake.clear()


@pytest.mark.parametrize(("count", "at_once"), [(1, 1), (2, 2), (3, 2), (12, 2), (100, 2)])
def test_one_work_wakes_two_workers_however_many_there_are(carrier, fleet, count, at_once):
    fleet(20, queues=("mail",))  # not counted
    idlers = fleet(count, queues=("default",))
    for number in range(5):
        publish_due(carrier, number=number)
        assert len(woken(idlers)) == at_once
        reset(idlers)
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
    reset(idlers)
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
    counts = [len(woken(idlers))]
    for seconds in sorted({seconds for seconds, _ in carrier.calls}):
        carrier.pass_time(seconds)
        counts.append(len(woken(idlers)))
    assert counts == [2, 4, 8, 12]


def test_the_others_do_not_look_once_the_work_is_taken(carrier, fleet):
    idlers = fleet(12)
    sender.origin, own = "elsewhere", sender.origin  # so that the work is no news to this process
    enqueue(add(a=1, b=2))
    sender.origin = own
    reset(idlers)
    carrier.sent.clear()
    publish_due(carrier)
    assert sum(idler.work() for idler in woken(idlers)) == 1
    [(channel, answer)] = carrier.sent
    assert channel == "answered"
    carrier.deliver("answered", answer.replace(own, "elsewhere"))
    carrier.pass_time(LONG)
    assert woken(idlers) == []


def test_a_message_whose_works_are_left_is_not_answered(carrier, fleet):
    idlers = fleet(12)
    enqueue_many([add(a=1, b=2) for _ in range(40)])
    reset(idlers)
    carrier.sent.clear()
    publish_due(carrier, works=40)
    assert len(woken(idlers)) == 12
    assert sum(idler.work() for idler in idlers[:3]) == 24
    assert [channel for channel, _ in carrier.sent] == []


def test_a_worker_that_finds_what_others_left_looks_at_once_until_it_finds_nothing(carrier, fleet):
    """As the others are frozen, or serve other types."""
    idlers = fleet(12)
    publish_due(carrier)
    late = next(idler for idler in idlers if not idler.is_woken)
    enqueue(add(a=1, b=2))
    reset(idlers)
    carrier.sent.clear()
    carrier.pass_time(LONG)
    assert late.work() == 1
    assert [channel for channel, _ in carrier.sent] == ["answered"]
    for number in range(5):
        enqueue(add(a=1, b=2))
        reset([late])
        publish_due(carrier, number=number)
        assert late.is_woken
        assert late.work() == 1
    wakes: list[bool] = []
    for number in range(20):  # for each it waits for its step, once it has looked in vain
        publish_due(carrier, number=number)
        wakes.append(late.is_woken)
        assert late.work() == 0
    assert not all(wakes)


def test_the_others_look_later_with_a_carrier_that_makes_no_calls(carrier, fleet):
    carrier.call_later = None
    idlers = fleet(3)
    publish_due(carrier)
    eventually(lambda: len(woken(idlers)) == 3)


def test_workers_that_have_stopped_or_were_not_seen_lately_are_not_counted(carrier, fleet):
    idlers = fleet(20)
    WorkerProcess.objects.filter(id__lt="worker-010").update(stopped_at=now())
    WorkerProcess.objects.filter(id__gte="worker-010").exclude(id="worker-019").update(
        seen_at="2020-01-01T00:00Z"
    )
    last = idlers[-1]
    last.waking._read_at = float("-inf")
    last.claimer.claim(0)
    for number in range(10):
        publish_due(carrier, number=number)
        assert last.is_woken
        reset([last])


def test_an_answer_that_makes_no_sense_drops_nothing(carrier, fleet):
    idlers = fleet(12)
    publish_due(carrier)
    for text in ("", "scribble", '["elsewhere",null]', '["elsewhere",["x"]]'):
        carrier.deliver("answered", text)
    carrier.pass_time(LONG)
    assert len(woken(idlers)) == 12
