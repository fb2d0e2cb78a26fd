"""The tests of a Store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from django_ayework.ports.kv import Store
from django_ayework.testing.clock import time_travel
from django_ayework.testing.conformance.shared import AWKWARD_TEXTS, T, in_threads, new_key, raises


class StoreConformance:
    """The tests of a Store, for pytest and for unittest. Say how to make one in ``make_store``.

    If your Store does not follow the engine's clock, override ``pass_time``, to sleep for instance. A Store
    in the database needs real transactions: ``TransactionTestCase``, or ``django_db(transaction=True)``.

    Example::

        class TestMyStore(StoreConformance, TestCase):
            def make_store(self):
                return MyStore()
    """

    #: Threads that act at the same moment, and how often each.
    rivals, rounds = 4, 25

    def make_store(self) -> Store:
        """Return a Store to be tested; each test uses keys of its own."""
        raise NotImplementedError("return a Store from make_store().")

    def pass_time(self, seconds: float) -> None:
        """Let this time go by for the Store."""
        time_travel(seconds)

    def test_a_key_is_not_set_at_first(self) -> None:
        store, key = self.make_store(), new_key()
        store.delete(key)
        assert store.get(key) is None

    def test_a_key_is_set_set_again_and_deleted(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one")
        assert store.get(key) == "one"
        store.set(key, "two")
        assert store.get(key) == "two"
        store.delete(key)
        assert store.get(key) is None

    def test_any_text_is_a_value(self) -> None:
        store, key = self.make_store(), new_key()
        for value in (*AWKWARD_TEXTS, "x" * 100_000):
            store.set(key, value)
            assert store.get(key) == value

    def test_any_text_is_a_key_and_no_two_are_one(self) -> None:
        store, prefix = self.make_store(), new_key()
        keys = [f"{prefix}{text}" for text in (*AWKWARD_TEXTS, "x" * 1000, "x" * 1001)]
        for number, key in enumerate(keys):
            store.set(key, str(number))
        assert [store.get(key) for key in keys] == [str(number) for number in range(len(keys))]

    def test_what_one_store_sets_another_of_its_kind_sees(self) -> None:
        key = new_key()
        store = self.make_store()
        store.set(key, "one")
        assert in_threads(1, lambda number: store.get(key)) == ["one"]

    def test_a_key_stays_for_its_time(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one", ttl=60)
        self.pass_time(59)
        assert store.get(key) == "one"
        self.pass_time(1)
        assert store.get(key) is None

    def test_a_key_without_a_time_stays(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one", ttl=1)
        store.set(key, "two")
        self.pass_time(2)
        assert store.get(key) == "two"

    def test_a_time_may_be_a_timedelta_but_not_nothing(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one", ttl=timedelta(minutes=1))
        assert store.get(key) == "one"
        for ttl in (0, -1, timedelta()):
            assert raises(ValueError, lambda ttl=ttl: store.set(key, "two", ttl=ttl))  # type: ignore[misc]
        assert store.get(key) == "one"

    def test_a_key_is_set_if_it_is_absent(self) -> None:
        store, key = self.make_store(), new_key()
        assert store.set_if_absent(key, "one") is True
        assert store.set_if_absent(key, "two") is False
        assert store.get(key) == "one"
        store.delete(key)
        assert store.set_if_absent(key, "three") is True

    def test_a_key_that_has_run_out_is_absent(self) -> None:
        store, key = self.make_store(), new_key()
        store.set_if_absent(key, "one", ttl=60)
        self.pass_time(60)
        assert store.set_if_absent(key, "two", ttl=60) is True
        self.pass_time(59)
        assert store.get(key) == "two"

    def test_incrementing_counts_from_nothing(self) -> None:
        store, key = self.make_store(), new_key()
        assert store.increment(key) == 1
        assert store.swap(key, "1", "11") is True
        assert store.increment(key, -12) == -1
        assert store.swap(key, "-1", "10") is True
        assert store.increment(key, 10) == 20

    def test_incrementing_goes_on_from_a_number_that_was_set(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "9007199254740993")
        assert store.increment(key) == 9007199254740994

    def test_incrementing_gives_a_new_key_its_time_and_leaves_that_of_others(self) -> None:
        store, key = self.make_store(), new_key()
        store.increment(key, ttl=60)
        self.pass_time(59)
        assert store.increment(key, ttl=3600) == 2
        self.pass_time(1)
        assert store.get(key) is None
        assert store.increment(key, ttl=60) == 1

    def test_what_is_no_number_is_not_incremented(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one")
        assert raises(ValueError, lambda: store.increment(key))
        assert store.get(key) == "one"

    def test_a_key_is_swapped_if_it_is_as_expected(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one")
        assert store.swap(key, "two", "three") is False
        assert store.get(key) == "one"
        assert store.swap(key, "one", "two") is True
        assert store.get(key) == "two"

    def test_swapping_compares_exactly(self) -> None:
        store, key = self.make_store(), new_key()
        for value in AWKWARD_TEXTS:
            store.set(key, value)
            for other in AWKWARD_TEXTS:
                assert store.swap(key, other, value) is (other == value), (value, other)

    def test_swapping_nothing_sets_a_key_that_is_absent(self) -> None:
        store, key = self.make_store(), new_key()
        assert store.swap(key, "one", "two") is False
        assert store.swap(key, None, "one") is True
        assert store.swap(key, None, "two") is False
        assert store.get(key) == "one"

    def test_swapping_begins_the_time_anew(self) -> None:
        store, key = self.make_store(), new_key()
        store.set(key, "one", ttl=60)
        self.pass_time(59)
        assert store.swap(key, "one", "two", ttl=60) is True
        self.pass_time(59)
        assert store.get(key) == "two"
        self.pass_time(1)
        assert store.swap(key, "two", "three") is False
        assert store.swap(key, None, "three") is True

    def test_rivals_increment_exactly(self) -> None:
        store, key = self.make_store(), new_key()
        sums = self.race(lambda number: store.increment(key))
        assert sorted(sums) == list(range(1, self.rivals * self.rounds + 1))

    def test_of_rivals_one_sets_an_absent_key(self) -> None:
        store, prefix = self.make_store(), new_key()
        won = self.race(lambda number: store.set_if_absent(f"{prefix}{number}", "", ttl=60) and number)
        assert sorted(number for number in won if number is not False) == list(range(self.rounds))

    def test_rivals_swap_exactly(self) -> None:
        store, key = self.make_store(), new_key()

        def add_one(number: int) -> int:
            while True:
                before = store.get(key)
                after = int(before or 0) + 1
                if store.swap(key, before, str(after), ttl=60):
                    return after

        assert sorted(self.race(add_one)) == list(range(1, self.rivals * self.rounds + 1))

    def race(self, act: Callable[[int], T]) -> list[T]:
        """Let rivals act at the same moment, round after round; return their results."""
        start = threading.Barrier(self.rivals)

        def run(rival: int) -> list[T]:
            got = []
            try:
                for number in range(self.rounds):
                    start.wait(60)
                    got.append(act(number))
            except threading.BrokenBarrierError:  # another rival has failed
                pass
            except BaseException:
                start.abort()
                raise
            return got

        return [each for got in in_threads(self.rivals, run) for each in got]
