"""The scheduler: a thread of its own, as it runs code of the project, for which no lease may wait."""

from __future__ import annotations

import time

from django_ayework.define.schedules import schedules
from django_ayework.flow.firing import IDLE, fire_due
from django_ayework.flow.schedules import restore, sync
from django_ayework.store.connections import tidy_connections
from django_ayework.worker.threads import LoopThread, Recovery

#: Seconds to wait after the database could not be asked, growing to the second figure.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
#: Seconds between two checks for schedules that another process has disabled and this one declares.
RESTORE_EVERY = 30.0
#: Seconds between two turns while the database has no schedules. The claiming thread's poll finds the first.
NO_SCHEDULES = 30.0


class Scheduler(LoopThread):
    """Fires schedules until it is stopped. Any number of them may run: each occurrence is fired by one."""

    failure = "the scheduler failed and carries on"
    closes_for = IDLE

    def __init__(self) -> None:
        super().__init__("scheduler", Recovery(FIRST_PAUSE, LONGEST_PAUSE), waits_for_locks=True)
        self._are_schedules = True
        self._synced: int | None = None
        self._restore_at = 0.0

    def note(self, are_schedules: bool) -> None:
        """Note whether the database has schedules that are to fire. The first one ends a rest."""
        if (are_schedules and not self._are_schedules) or schedules.version != self._synced:
            self.wake.set()
        self._are_schedules = are_schedules

    def turn(self) -> float:
        """Sync if declarations have changed, then fire what is due; return how long nothing is."""
        self._sync_declared()
        ticked = fire_due(is_over=self.is_over)
        if ticked.busy:
            tidy_connections()  # code of the project may have left any behind
        return ticked.pause if ticked.pause < IDLE or self._are_schedules else NO_SCHEDULES

    def _sync_declared(self) -> None:
        version = schedules.version
        if version != self._synced:
            sync()
            self._synced = version
        elif time.monotonic() >= self._restore_at and schedules.names():
            restore()
        else:
            return
        self._restore_at = time.monotonic() + RESTORE_EVERY
