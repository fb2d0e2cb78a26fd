"""The tests of a Queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from django_ayework.ports.queue import PoppedId, Queue
from django_ayework.testing.conformance import shared
from django_ayework.testing.conformance.shared import AWKWARD_TEXTS, T, in_threads, new_key


class QueueConformance:
    """The tests of a Queue, for pytest and for unittest. Say how to make one in ``make_queue``.

    Example::

        class TestMyQueue(QueueConformance, TestCase):
            def make_queue(self, lapse):
                return MyQueue(lapse)
    """

    def make_queue(self, lapse: float) -> Queue:
        """Return a Queue to be tested, whose popped ids lapse after so many seconds.

        Each test uses queue names of its own, acknowledges what is left in them, and closes the Queue.
        """
        raise NotImplementedError("return a Queue from make_queue().")

    @contextmanager
    def line(self, lapse: float = 60.0) -> Iterator[Line]:
        """Yield a Queue with a name that nobody else uses."""
        line = Line(self.make_queue(lapse), new_key())
        try:
            yield line
        finally:
            line.clear()
            line.queue.close()

    def test_ids_are_popped_in_their_order(self) -> None:
        with self.line() as line:
            line.push("b", "a")
            line.push("c")
            assert line.pop_all(3) == ["b", "a", "c"]

    def test_any_text_is_an_id(self) -> None:
        with self.line() as line:
            texts = [text for text in AWKWARD_TEXTS if text]
            line.push(*texts)
            assert line.pop_all(len(texts)) == texts

    def test_many_ids_are_pushed_at_once(self) -> None:
        with self.line() as line:
            ids = [str(number) for number in range(2500)]
            line.push(*ids)
            assert line.pop_all(len(ids)) == ids

    def test_an_empty_queue_gives_nothing(self) -> None:
        with self.line() as line:
            assert [line.queue.pop([line.name], 5, wait) for wait in (0.01, 0.0)] == [[], []]

    def test_no_more_is_popped_than_was_asked_for(self) -> None:
        with self.line() as line:
            line.push("a", "b", "c")
            assert [popped.id for popped in line.pop(2)] == ["a", "b"]

    def test_an_id_is_popped_once(self) -> None:
        with self.line() as line:
            line.push(*(str(number) for number in range(100)))
            found = in_threads(4, lambda number: line.pop_all(100, waits=False))
            assert sorted(int(id) for ids in found for id in ids) == list(range(100))

    def test_a_waiting_reader_gets_the_next_id(self) -> None:
        with self.line() as line, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(line.pop_all, 1)
            line.push("a")
            assert waiting.result() == ["a"]

    def test_queues_are_apart_and_each_gives_its_part(self) -> None:
        with self.line() as line:
            line.push(*(str(number) for number in range(10)))
            line.queue.push(line.other, ["other"])
            names = [line.name, line.other]
            popped = eventually_some(lambda: line.queue.pop(names, 4, 0.2))
            assert [(each.queue, each.id) for each in popped if each.queue == line.other] == [
                (line.other, "other")
            ]
            assert [each.id for each in popped if each.queue == line.name] in (["0"], ["0", "1"])

    def test_what_was_acknowledged_is_gone(self) -> None:
        with self.line(lapse=0.05) as line:
            line.push("a", "b")
            first, second = line.pop(2)
            line.queue.ack([first])
            assert [popped.id for popped in line.pop(1) + line.pop(1)] == ["b", "b"]
            line.queue.ack([second, first])

    def test_what_was_put_back_is_popped_again(self) -> None:
        with self.line() as line:
            line.push("a", "b")
            line.queue.put_back(line.pop(2))
            assert sorted(line.pop_all(2)) == ["a", "b"]

    def test_what_was_kept_for_too_long_is_popped_again(self) -> None:
        with self.line(lapse=0.05) as line:
            line.push("a")
            assert [popped.id for popped in line.pop(1)] == ["a"]
            assert [popped.id for popped in line.pop(1)] == ["a"]

    def test_it_may_be_used_again_after_it_was_closed(self) -> None:
        with self.line() as line:
            line.push("a")
            line.queue.close()
            line.queue.close()
            line.push("b")
            assert line.pop_all(1)


class Line:
    """One queue of a Queue, and another one."""

    def __init__(self, queue: Queue, key: str) -> None:
        self.queue, self.name, self.other = queue, f"{key}one", f"{key}two"

    def push(self, *ids: str) -> None:
        """Push ids."""
        self.queue.push(self.name, ids)

    def pop(self, number: int) -> list[PoppedId]:
        """Pop so many ids, in as many steps as that takes."""
        popped: list[PoppedId] = []
        while (left := number - len(popped)) > 0:
            popped += eventually_some(partial(self.queue.pop, [self.name], left, 0.05))
        return popped

    def pop_all(self, number: int, waits: bool = True) -> list[str]:
        """Pop so many ids and acknowledge them; without ``waits``, those that are there."""
        ids: list[str] = []
        while len(ids) < number:
            popped = self.pop(number - len(ids)) if waits else self.queue.pop([self.name], 7, 0.01)
            if not popped:
                return ids
            ids += [each.id for each in popped]
            self.queue.ack(popped)
        return ids

    def clear(self) -> None:
        """Acknowledge what is there to be popped."""
        while popped := self.queue.pop([self.name, self.other], 1000, 0.01):
            self.queue.ack(popped)


def eventually_some(look: Callable[[], list[T]]) -> list[T]:
    """Look until there is something, and return it."""
    until = time.monotonic() + shared.PATIENCE
    while not (found := look()):
        assert time.monotonic() < until, "nothing came"
    return found
