"""Claiming for one process: which queues, in which order, how many."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from datetime import datetime

from django_ayework.conf import get_settings
from django_ayework.flow.blockers import blockers_of
from django_ayework.flow.chores import expire_gates, reclaim
from django_ayework.flow.closing import recheck_leftovers
from django_ayework.flow.events import report
from django_ayework.flow.options import decode_options
from django_ayework.rules.durations import later
from django_ayework.store import transitions
from django_ayework.store.clock import clock
from django_ayework.store.look import Look, look, queues_with_work
from django_ayework.store.rows import WorkRow
from django_ayework.store.waiters import watched_by_all
from django_ayework.worker.delivery import Delivery

STAGE_BATCH = 500


class Claimer:
    """Finds due works for one worker. One cheap look per poll at rest; none while works keep coming."""

    def __init__(self, worker_id: str, queues: Sequence[str]) -> None:
        self.worker_id = worker_id
        self.only = tuple(queues)
        self.busy: list[str] = []
        self.next_start: datetime | None = None
        self._turn = 0
        self._looked_at = float("-inf")

    def claim(self, wanted: int, sparing: set[str]) -> list[Delivery]:
        """Lease up to ``wanted`` works, each queue with due works getting its share.

        What is claimed is ours to run: an error at a later queue may not strand it until its lease lapses.
        """
        if not self.busy or self.look_is_due():
            self.look_around(sparing)
        claimed: list[WorkRow] = []
        for queue in self.in_turn():
            share = min(wanted - len(claimed), -(-wanted // max(1, len(self.busy))))
            if share <= 0:
                break
            try:
                rows = self.claim_from(queue, share)
            except Exception as error:
                if not claimed:
                    raise
                report(error, "queue", f"the queue {queue!r} could not be claimed from")
                break
            claimed += rows
            if len(rows) < share:
                self.busy.remove(queue)
        return self.delivered(claimed)

    def delivered(self, claimed: list[WorkRow]) -> list[Delivery]:
        """Return claimed rows as deliveries; when that fails, they go back."""
        try:
            return deliveries_of(claimed)
        except Exception:
            transitions.release({row.id: row.delivery for row in claimed}, self.worker_id)
            raise

    def look_is_due(self) -> bool:
        """Tell whether the last look is a poll ago."""
        return time.monotonic() - self._looked_at >= get_settings().poll_interval

    def look_around(self, sparing: set[str]) -> None:
        """See what there is to do; stage what has become due, and do the chores that are due."""
        now = clock.now()
        self._looked_at = time.monotonic()
        view = look(now)
        if view.next_start is not None and view.next_start <= now:
            transitions.stage(now, STAGE_BATCH)
            view = look(now)
        self.do_chores(view, sparing)
        self.next_start = view.next_start
        found = queues_with_work(view.first_queue)
        self.busy = [queue for queue in found if not self.only or queue in self.only]

    def do_chores(self, view: Look, sparing: set[str]) -> None:
        """Do for the fleet what nobody else has done."""
        if view.lapsed:
            reclaim(sparing)
        if view.recheck:
            recheck_leftovers()
        if view.overdue:
            expire_gates()

    def in_turn(self) -> list[str]:
        """Return the busy queues, a different one first each time."""
        self._turn += 1
        start = self._turn % len(self.busy) if self.busy else 0
        return self.busy[start:] + self.busy[:start]

    def claim_from(self, queue: str, limit: int) -> list[WorkRow]:
        """Lease works of one queue."""
        now = clock.now()
        return transitions.claim(queue, limit, self.worker_id, now, later(now, get_settings().lease))

    def is_idle(self) -> bool:
        """Tell whether nothing that this worker may run is due."""
        return not self.busy and (self.next_start is None or self.next_start > clock.now())

    def pause(self) -> float:
        """Return how many seconds to sleep when there was nothing: a poll, or until the next start."""
        pause = get_settings().poll_interval * random.uniform(0.9, 1.1)  # noqa: S311  # spreads the fleet
        if self.next_start is not None:
            pause = min(pause, max(0.0, (self.next_start - clock.now()).total_seconds()))
        return pause


def deliveries_of(rows: list[WorkRow]) -> list[Delivery]:
    """Return claimed rows as deliveries.

    Those that a gate released learn what it had waited for, those with blockers the blockers' results.
    """
    options = {row.id: decode_options(row.options) for row in rows}
    released = {row.parent_id for row in rows if row.parent_id and options[row.id].released}
    blocked = [row.id for row in rows if options[row.id].blocked]
    dependents = watched_by_all(released) if released else {}
    blockers = blockers_of(blocked) if blocked else {}
    lease = get_settings().lease
    return [
        Delivery(row, lease, dependents.get(row.parent_id or "", ()), blockers.get(row.id, ()))
        for row in rows
    ]
