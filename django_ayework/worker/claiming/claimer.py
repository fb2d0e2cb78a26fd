"""Claiming for one process: which queues, in which order, how many."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from django.db import Error

from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.flow.controls import current_controls
from django_ayework.flow.events import report
from django_ayework.flow.news.elsewhere import hears_others
from django_ayework.rules.controls import Controls
from django_ayework.rules.durations import later
from django_ayework.rules.news import Due, Place
from django_ayework.rules.scope import Scope
from django_ayework.store import leases, transitions
from django_ayework.store.clock import clock
from django_ayework.store.lanes import Lane
from django_ayework.store.look import Look, look
from django_ayework.store.rows import WorkRow
from django_ayework.worker.attempts.delivery import Delivery
from django_ayework.worker.batches.sizes import NO_ROOM, slots_for
from django_ayework.worker.claiming.acceptance import accepted
from django_ayework.worker.claiming.places import Places, Room, no_room
from django_ayework.worker.claiming.rations import Claim, claim_of
from django_ayework.worker.claiming.search import LaneSearch
from django_ayework.worker.claiming.shares import KnownShares, Share, shares_of
from django_ayework.worker.fleet import Fleet
from django_ayework.worker.waking import Told

STAGE_BATCH = 500
#: Polls between two looks of a worker that has nothing to do and would be told.
LONG_REST = 3
#: Seconds between two looks for anything at all, while there are works to claim.
CURIOUS_AFTER = 0.05


class Claimer:
    """Finds due works for one worker. One cheap look per poll at rest; none while works keep coming."""

    def __init__(self, worker_id: str, scope: Scope, room_of_doer: Room = no_room) -> None:
        self.worker_id = worker_id
        self.scope = scope
        self.room_of_doer = room_of_doer
        self.busy: list[Share] = []
        self.controls = Controls()
        #: Called with the controls once they have changed.
        self.on_controls: Callable[[Controls], object] = lambda controls: None
        #: Types with due works that are at their limit, or whose control another transaction holds.
        self.held_back: set[str] = set()
        self.next_start: datetime | None = None
        #: What others say is due.
        self.told = Told(scope)
        self.fleet = Fleet(worker_id)
        self._controls_seen: tuple[int, int] | None = None
        self._room_made = False
        self._turn = 0
        self._known_shares = KnownShares()
        self._search = LaneSearch()
        self._looked_at = float("-inf")
        self._look_was_put_off = False
        self._is_curious = False
        #: Whether another transaction holds the control of a type.
        self._is_held_up = False
        self._cut_off = False
        #: Called with what a look has found, and the intervals of continuous types: maintenance sees to it.
        self.on_look: Callable[[Look, Mapping[str, float]], object] = lambda view, intervals: None
        #: Called when the database answers again that was away, for all workers perhaps.
        self.on_return: Callable[[], object] = lambda: None

    def claim(
        self, wanted: int, room: Mapping[str, int] = NO_ROOM, most: int | None = None
    ) -> list[Delivery]:
        """Lease works for ``wanted`` slots and for what doers have room for.

        Each share with due works gets as much as the others with the same doer, or without one.

        ``room`` is what batches that gather take besides, by type; ``most`` bounds the number of works.

        What is claimed is ours to run: an error at a later one may not strand it until its lease lapses.
        """
        if self.must_look():
            self.look_around()
        claimed: list[WorkRow] = []
        places = Places(wanted, self.room_of_doer)
        for share in self.in_turn():
            slots = places.of(share, self.busy)
            spare = None if most is None else most - len(claimed)
            try:
                rows = self.claim_from(share, slots, room, spare)
            except Exception as error:
                if not claimed:
                    raise
                report(error, "queue", f"the queue {share.queue!r} could not be claimed from")
                break
            places.take(share, slots_for((row.type for row in rows), room))
            claimed += rows
        deliveries = delivered(claimed, self.worker_id)
        give_own_leases(deliveries, self.worker_id)
        return deliveries

    def must_look(self) -> bool:
        """Tell whether to look before claiming; what was said to be due is claimed without a look.

        A look that is due by time is put off for that, but not twice. One for something that nobody could
        name waits a moment while there are other works: on SQLite every commit is such a thing. So does one
        for types whose control was held by another transaction.
        """
        told = self.told.take()
        self._is_curious |= told.places is None
        put_off = self.learn(told) and not self._look_was_put_off and told.places is not None
        self._look_was_put_off = put_off
        if put_off:
            return False
        if self.knows_of_nothing() or self.look_is_due():
            return True
        waits = self._is_curious or self._is_held_up
        return waits and time.monotonic() - self._looked_at >= CURIOUS_AFTER

    def learn(self, told: Due) -> bool:
        """Serve the lanes that are said to have works, and note the next start; return whether any is new."""
        if told.start is not None:
            start = datetime.fromtimestamp(told.start, UTC)
            self.next_start = start if self.next_start is None else min(self.next_start, start)
        known = {Lane(share.queue, type) for share in self.busy for type in share.types}
        lanes = {Lane(*place) for place in told.places or () if place[1] not in self.held_back}
        if lanes <= known:
            return False
        self.busy = self._known_shares.of(sorted(known | lanes), self.controls)
        return True

    def knows_of_nothing(self) -> bool:
        """Tell whether only a look can find works: those known of are for doers without room, if any are."""
        return all(share.doer is not None and self.room_of_doer(share.doer) <= 0 for share in self.busy)

    def may_claim_more(self, wanted: int) -> bool:
        """Tell whether there is likely more to claim, for so many slots or for a doer."""
        places = Places(wanted, self.room_of_doer)
        return any(places.of(share, self.busy) > 0 for share in self.busy)

    def look_is_due(self) -> bool:
        """Tell whether the last look is a poll ago, or what has ended since makes room."""
        return self._room_made or time.monotonic() - self._looked_at >= get_settings().poll_interval

    def look_around(self) -> None:
        """See what there is to do; stage what has become due, and leave the rest to maintenance."""
        now = clock.now()
        self._looked_at = time.monotonic()
        self._room_made = self._is_curious = self._is_held_up = False
        view = self.see(now)
        if view.next_start is not None and view.next_start <= now:
            transitions.stage(now, STAGE_BATCH)
            view = look(now, self.scope)
        self.heed_controls(view)
        self.on_look(view, self.intervals())
        self.next_start = view.next_start
        self.held_back.clear()
        found = [] if view.first_queue is None else self._search.find(self.scope, self.controls.permits)
        self.busy = shares_of(found, self.controls)
        self.fleet.refresh()

    def left(self) -> set[Place]:
        """Return where there are works that the last claim has not taken, as far as it knows."""
        busy = {(share.queue, type) for share in self.busy for type in share.types}
        named = {place for message in self.told.taken for place in message.due.places or ()}
        return busy | {place for place in named if place[1] in self.held_back}

    def heed_controls(self, view: Look) -> None:
        """Read the controls if they have changed."""
        if view.controls != self._controls_seen:
            self.controls = current_controls()
            self.on_controls(self.controls)
            self._controls_seen = view.controls

    def intervals(self) -> dict[str, float]:
        """Return the intervals of the continuous types served here that are not paused."""
        return {
            type: control.interval
            for type, control in self.controls.types.items()
            if control.interval is not None
            and not control.paused
            and self.scope.serves_type(type)
            and registry.find(type) is not None
        }

    def see(self, now: datetime) -> Look:
        """Look; tell when the database was away, so that its holders get a moment to renew their leases."""
        try:
            view = look(now, self.scope)
        except Error:
            self._cut_off = True
            raise
        if self._cut_off:
            self._cut_off = False
            self.on_return()
        return view

    def in_turn(self) -> list[Share]:
        """Return the busy shares, a different one first each time."""
        self._turn += 1
        start = self._turn % len(self.busy) if self.busy else 0
        return self.busy[start:] + self.busy[:start]

    def claim_from(
        self, share: Share, slots: int, room: Mapping[str, int] = NO_ROOM, most: int | None = None
    ) -> list[WorkRow]:
        """Lease works of one share; types that have no more, or no room for more, leave it until a look."""
        now = clock.now()
        lease = later(now, get_settings().lease)
        claimed = claim_of(Claim(share, slots, self.worker_id, now, lease, room, most), self.controls)
        self.held_back |= claimed.full | claimed.contended
        self._is_held_up |= bool(claimed.contended)
        if done := claimed.full | claimed.empty | claimed.contended:
            rest = share.without(done)
            self.busy = [left for each in self.busy if (left := rest if each is share else each) is not None]
        return claimed.rows

    def make_room(self, types: Iterable[str]) -> bool:
        """Note that works of these types have ended; return whether that lets others be claimed."""
        if not self.held_back or self.held_back.isdisjoint(types):
            return False
        self._room_made = True
        return True

    def is_idle(self) -> bool:
        """Tell whether the last look found nothing due that this worker may run; what a limit holds is."""
        return not self.busy and (self.next_start is None or self.next_start > clock.now())

    def pause(self) -> float:
        """Return how many seconds to sleep when there was nothing: a poll, or until the next start.

        Longer than a poll if others would say that something is due; but lapsed leases tell nobody. Shorter
        while another transaction holds the control of a type.
        """
        settings = get_settings()
        rest = max(settings.poll_interval, min(LONG_REST * settings.poll_interval, settings.lease / 6))
        pause = (rest if self.would_be_told() else settings.poll_interval) * random.uniform(0.9, 1.1)  # noqa: S311  # spreads the fleet
        if self._is_held_up:
            pause = min(pause, CURIOUS_AFTER)
        if self.next_start is not None:
            pause = min(pause, max(0.0, (self.next_start - clock.now()).total_seconds()))
        return pause

    def would_be_told(self) -> bool:
        """Tell whether the next thing to do is told by others: there is none known, and they are heard."""
        return not self.busy and not self.held_back and not self.intervals() and hears_others()


def delivered(claimed: list[WorkRow], worker_id: str) -> list[Delivery]:
    """Return claimed rows that are accepted here as deliveries; when that fails, they go back."""
    try:
        return accepted(deliveries_of(claimed), worker_id)
    except Exception:
        transitions.release({row.id: row.delivery for row in claimed}, worker_id)
        raise


def give_own_leases(deliveries: list[Delivery], worker_id: str) -> None:
    """Write the leases of works that have one of their own, as a claim gives all of them the settings'.

    One that cannot be written now is due for renewal at once.
    """
    own = {delivery.lease for delivery in deliveries if delivery.has_own_lease}
    for lease in own:
        mine = {each.row.id: each for each in deliveries if each.lease == lease}
        held = {id: each.row.delivery for id, each in mine.items()}
        try:
            now = time.monotonic()
            for id in leases.renew(held, worker_id, later(clock.now(), lease)):
                mine[id].renew(now)
        except Error as error:
            report(error, "queue", f"{len(mine)} leases could not be written at once")


def deliveries_of(rows: list[WorkRow]) -> list[Delivery]:
    """Return claimed rows as deliveries."""
    lease = get_settings().lease
    return [Delivery(row, lease) for row in rows]
