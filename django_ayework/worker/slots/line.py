"""The line in front of the slots: which work is next, and which thread runs it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from django_ayework.worker.batches.batch import Batch
from django_ayework.worker.slots.loads import Load, is_async, is_interruptible
from django_ayework.worker.slots.pace import Pace
from django_ayework.worker.slots.runners import Guest, Runner, SlotThread

#: Seconds for which no guest runs works of a type that one was stuck in.
NO_GUESTS_FOR = 30.0
#: Seconds for which a runner of quick works is given more of their type without another look: far less than
#: it may be stuck in one, and enough for some dozens.
TRUST = 0.001


class Line:
    """Decides, and runs nothing. What is quick goes to one runner, the rest to as many as there are slots.

    ``start_async`` starts a load that takes no thread, ``new_thread`` makes another thread for the slots.
    Everything that is asked of it is answered under one lock.
    """

    def __init__(
        self,
        concurrency: int,
        pace: Pace,
        start_async: Callable[[Load], None],
        new_thread: Callable[[], SlotThread],
    ) -> None:
        self.concurrency = concurrency
        #: Called when a runner comes to quick works: from then on it is to be relieved now and then.
        self.on_quick: Callable[[], object] = lambda: None
        #: Called when a guest would have been welcome, had anybody watched.
        self.on_unwatched: Callable[[], object] = lambda: None
        #: The guest that comes regularly, and runs quick works in preference to threads of the slots.
        self.regular: Guest | None = None
        #: Whether somebody watches guests, so that they are welcome.
        self.is_watched = False
        self.lock = threading.Lock()
        self.taken = 0  # slots in use
        self._pace = pace
        self._start_async = start_async
        self._new_thread = new_thread
        self._waiting: deque[Load] = deque()
        self._plain = 0  # of the slots in use, those by plain functions
        self._quick: set[Runner] = set()  # of these, by what should be over in a moment
        self._idle: list[SlotThread] = []  # the last to run is the next to run
        self._guests = 0  # with a slot
        self._no_guests_before: dict[str, float] = {}  # by type
        self._welcomed_at = 0.0

    def join(self, loads: Iterable[Load], guest: Guest | None) -> None:
        """Let loads wait behind others; start what can start, or give a guest a slot for it."""
        with self.lock:
            self._waiting.extend(loads)
            if guest is not None and not self._quick and self.taken < self.concurrency:
                self._invite(guest)
            self._fill()

    def relieve(self, patience: float) -> None:
        """Let others go on behind quick works that have taken so many seconds."""
        before = time.monotonic() - patience
        with self.lock:
            self._quick = {runner for runner in self._quick if runner.since >= before}
            self._fill()

    @property
    def is_to_be_relieved(self) -> bool:
        """Whether somebody waits for a quick work to end, or runs one."""
        return bool(self._quick or (self._waiting and self.taken < self.concurrency))

    def is_quick_for(self, runner: Runner) -> bool:
        """Tell whether a runner is the one at quick works."""
        return runner in self._quick

    def next_for(self, thread: SlotThread, ended: Load) -> Load | None:
        """Note what has ended; pass its slot on to the next load, and return that if this is to run it."""
        now = time.monotonic()
        with self.lock:
            self._note(thread, ended, now)
            if self._is_trusted(thread, now):
                return self._waiting.popleft()
            if self._invite_instead(thread):
                return None
            load = self._waiting[0] if self._waiting else None
            if load is not None and self._is_quick(load):
                if thread not in self._quick:
                    self._quick.add(thread)
                    self.on_quick()
                self._trust(thread, load, now)
                return self._waiting.popleft()
            if load is not None and not is_async(load):
                self._waiting.popleft()
                self._quick.discard(thread)
                thread.is_noted = False
                self._fill()
                return load
            self._leave(thread)
            self._fill()
            return None

    def next_for_guest(self, guest: Guest, ended: Load | None = None, goes: bool = False) -> Load | None:
        """Note what a guest has run, if anything; return what it is to run now.

        It keeps its slot when it ``goes`` for the moment, and loses it when there is nothing more for it.
        """
        now = time.monotonic()
        with self.lock:
            if ended is not None:
                self._note(guest, ended, now)
                if not goes and self._is_trusted(guest, now):
                    return self._waiting.popleft()
            guest.since, guest.is_running = now, False
            if guest not in self._quick or not self._is_for_guests():
                self._dismiss(guest)
                return None
            if goes:
                return None
            guest.is_running = True
            self._trust(guest, self._waiting[0], now)
            return self._waiting.popleft()

    # --- guests -------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Note that somebody watches: from now on guests are welcome."""
        with self.lock:
            self.is_watched = True
            self._welcomed_at = time.monotonic()

    def unwatch(self, after: float) -> None:
        """Note that nobody watches, unless there is a guest or was one in the last ``after`` seconds."""
        with self.lock:
            self.is_watched = self._guests > 0 or self._welcomed_at >= time.monotonic() - after

    def take_leave_of(self, guest: Guest, patience: float) -> bool:
        """Leave a guest to a work at which it has been for so many seconds; return whether it is.

        Under the lock under which it ends a work: so it never goes on when somebody else does.
        """
        with self.lock:
            now = time.monotonic()
            if not guest.is_running or guest.since >= now - patience:
                return False
            guest.is_left = True
            self._no_guests_before[guest.type] = now + NO_GUESTS_FOR
            self._quick.discard(guest)
            self._fill()
            return True

    def _invite(self, guest: Guest) -> bool:
        """Give a guest a slot if what waits first is for it; return whether that is so (under the lock).

        One at a time, and none while one that was left is still there: each has a connection for handlers.
        """
        if self._guests or not self._is_for_guests():
            return False
        if not self.is_watched:
            self.on_unwatched()
            return False
        guest.since = self._welcomed_at = time.monotonic()
        guest.has_slot = True
        self._guests += 1
        self.taken += 1
        self._plain += 1
        self._quick.add(guest)
        return True

    def _invite_instead(self, thread: SlotThread) -> bool:
        """Give the slot of a thread to the regular guest, who then has to come; return whether it has it."""
        if self.regular is None or self.regular.is_left or not self._invite(self.regular):
            return False
        self._leave(thread)
        self.on_quick()
        return True

    def _dismiss(self, guest: Guest) -> None:
        """Take a guest's slot, which is for others now (under the lock)."""
        guest.has_slot = False
        self._guests -= 1
        self._plain -= 1
        self.taken -= 1
        self._quick.discard(guest)
        self._fill()

    def _is_for_guests(self) -> bool:
        """Tell whether what waits first is quick, and no abort is ever raised in it (under the lock)."""
        load = self._waiting[0] if self._waiting else None
        if load is None or not self._is_quick(load) or is_interruptible(load):
            return False
        return not self._no_guests_before or self._no_guests_before.get(load.type, 0.0) <= time.monotonic()

    # --- threads ------------------------------------------------------------------------------------------

    def leave_slot(self) -> None:
        """Note that an async load has ended."""
        with self.lock:
            self.taken -= 1
            self._fill()

    def _fill(self) -> None:
        """Start what waits while slots are free; quick works wait for the one at them (under the lock)."""
        while self._waiting and self.taken < self.concurrency:
            if self._quick and self._is_quick(self._waiting[0]):
                return
            self._begin(self._waiting.popleft())

    def _begin(self, load: Load) -> None:
        """Start a load in a slot of its own (under the lock)."""
        self.taken += 1
        if is_async(load):
            self._start_async(load)
            return
        self._plain += 1
        thread = self._idle.pop() if self._idle else self._new_thread()
        thread.since, thread.is_noted = time.monotonic(), False
        if self._is_quick(load):
            self._quick.add(thread)
        thread.inbox.put(load)

    def _leave(self, thread: SlotThread) -> None:
        """Free the slot of a thread, which sleeps (under the lock)."""
        self._plain -= 1
        self.taken -= 1
        self._idle.append(thread)
        self._quick.discard(thread)

    def _trust(self, runner: Runner, load: Load, now: float) -> None:
        """Give a runner a quick load, and others like it for a moment (under the lock)."""
        runner.type, runner.is_noted, runner.trusted_until = load.type, False, now + TRUST

    def _is_trusted(self, runner: Runner, now: float) -> bool:
        """Tell whether a runner is given what waits first, as that is like the last (under the lock)."""
        if now >= runner.trusted_until or not self._waiting or runner not in self._quick:
            return False
        load = self._waiting[0]
        return load.type == runner.type and not isinstance(load, Batch)

    def _note(self, runner: Runner, ended: Load, now: float) -> None:
        """Note how long a load took, of those that a runner is trusted with the first (under the lock).

        When others follow without a look depends on those before: so the first is as good a sample as any.
        """
        if not runner.is_noted:
            self._pace.note(ended.type, now - runner.since, self._plain, runner in self._quick)
        runner.since, runner.is_noted = now, True

    def _is_quick(self, load: Load) -> bool:
        """Tell whether a load should be over in a moment."""
        return not isinstance(load, Batch) and not is_async(load) and self._pace.is_quick(load.type)
