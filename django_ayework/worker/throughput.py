"""How many attempts ended in this process: counted as they are settled, reported every few seconds."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from django_ayework.flow.settle import Settlement, Success
from django_ayework.rules.states import Outcome
from django_ayework.store import throughput
from django_ayework.store.clock import clock
from django_ayework.store.throughput import MINUTE, Ended, Place, span_start

#: Seconds between two reports.
REPORT_EVERY = 10.0
#: Types, queues and minutes that one report has by name. Others of a minute have one count without a name.
MOST_PLACES = 500


class Tally:
    """Counts ended attempts by minute, type and queue until they are reported. Safe in any thread.

    A deferral is no end. Counts that could not be reported are kept for the next report; a report whose
    commit got no answer may so be counted twice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Place, Ended] = {}

    def count(self, settlements: Iterable[Settlement]) -> None:
        """Count attempts that were settled."""
        minute = span_start(clock.now(), MINUTE)
        with self._lock:
            for settlement in settlements:
                row, ending = settlement.row, settlement.ending
                if not isinstance(ending, Success) and ending.outcome is Outcome.DEFERRED:
                    continue
                counts = self._counts_of(Place(minute, row.type, row.queue))
                counts.duration += settlement.seconds or 0.0
                if isinstance(ending, Success):
                    counts.succeeded += 1
                elif ending.will_retry:
                    counts.failed += 1
                else:
                    counts.dead += 1

    def _counts_of(self, place: Place) -> Ended:
        """Return the counts of a place (under the lock); of one too many, those of all such places."""
        found = self._counts.get(place)
        if found is None:
            if len(self._counts) >= MOST_PLACES:
                place = Place(place.minute, "", "")
            found = self._counts.setdefault(place, Ended())
        return found

    def report(self) -> None:
        """Add the counts to the table, or keep them for the next report if that fails."""
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return
        try:
            throughput.add(counts)
        except BaseException:
            self._take_back(counts)
            raise

    def _take_back(self, counts: dict[Place, Ended]) -> None:
        with self._lock:
            for place, ended in counts.items():
                self._counts_of(place).add(ended)
