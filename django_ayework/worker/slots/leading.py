"""Whoever leads claims works, and runs quick ones itself; one that is stuck in a work is followed by another.

To wake a thread for a work takes a tenth of a millisecond on a machine at rest. (The pattern is known as
Leader/Followers: Schmidt, O'Ryan, Pyarali, Kircher, Buschmann, 2000.)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from django.db import connections

from django_ayework.store.database import connection, in_transaction
from django_ayework.store.second_connection import give_up, take_over
from django_ayework.store.sessions import bounded_statements
from django_ayework.worker.slots.line import Line
from django_ayework.worker.slots.runners import Guest

#: Seconds after which a work is not quick, and another thread leads.
STUCK_AFTER = 0.05
#: Seconds between two looks whether that is so, and without a quick work until nobody looks any more.
LOOK_EVERY, WATCH_FOR = 0.05, 30.0


class Leadership:
    """Threads that lead one after the other, each until it is over for all, or until it is left to a work.

    ``lead(guest)`` leads. When it finds that ``guest.is_left`` it returns, and touches nothing more: somebody
    else leads already.
    """

    def __init__(self, lead: Callable[[Guest], None], line: Line) -> None:
        self._lead = lead
        self._line = line
        self._threads: list[threading.Thread] = []
        self._called = threading.Event()
        self._is_over = False
        self._error: BaseException | None = None
        line.on_unwatched = self._called.set

    def oversee(self) -> None:
        """Let threads lead until it is over; raise what the last of them raised."""
        if not in_transaction():
            connection().close()  # they have connections of their own
        guest = self._follow(None)
        while not self._is_over:
            if not self._line.is_watched:
                self._called.wait()
                self._line.watch()
                self._called.clear()  # afterwards: until it is watched, the line calls for each work
                continue
            self._called.wait(LOOK_EVERY)
            self._line.relieve(STUCK_AFTER)
            if self._line.take_leave_of(guest, STUCK_AFTER):
                guest = self._follow(guest)
            self._line.unwatch(after=WATCH_FOR)
        if self._error is not None:
            raise self._error

    def stop(self, timeout: float) -> None:
        """Wait at most so many seconds for threads that were left to a work."""
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _follow(self, before: Guest | None) -> Guest:
        """Let another thread lead, in the place of one that was left, if there was any before."""
        guest = Guest()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(
            threading.Thread(target=self._serve, args=(guest, before), name="ayework-leader", daemon=True)
        )
        self._threads[-1].start()
        return guest

    def _serve(self, guest: Guest, before: Guest | None) -> None:
        """Lead; whoever is not left to a work ends it for all."""
        try:
            with bounded_statements():
                if before is not None:
                    take_over(before.connections.engines)
                self._lead(guest)
        except BaseException as error:
            if guest.is_left:
                raise
            self._error = error
        finally:
            if not guest.is_left:
                self._is_over = True  # before the call, so that whoever hears it sees it
                self._called.set()
            else:
                give_up()
            guest.connections.close()
            connections.close_all()
