"""The scheduler: a thread of its own, as it runs the project's code, for which no lease may wait."""

from __future__ import annotations

import threading
import time

from django.db import connections

from django_ayework.define.schedules import schedules
from django_ayework.flow.events import report
from django_ayework.flow.firing import IDLE, fire_due
from django_ayework.flow.schedules import restore, sync
from django_ayework.heartbeat import Heartbeat
from django_ayework.store.connections import tidy_connections
from django_ayework.worker import bounds
from django_ayework.worker.threads import EngineThread, Recovery

#: Seconds to wait after the database could not be asked, growing to the second figure.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
#: Seconds between two looks for what another process has disabled and this one declares.
RESTORE_EVERY = 30.0
#: Seconds between two looks while the database has no schedules. The claiming thread looks for them, too.
NONE = 30.0


class Scheduler:
    """Fires schedules until it is stopped; with ``once``, what is due at the start and no more.

    Any number of them may run: each occurrence is fired by one. With ``off`` it does nothing.
    """

    def __init__(self, once: bool = False, off: bool = False) -> None:
        self._once = once
        self._stopping = threading.Event()
        self._bell = threading.Event()
        self._are_schedules = True
        self._synced: int | None = None
        self._restore_at = 0.0
        self._recovery = Recovery(FIRST_PAUSE, LONGEST_PAUSE)
        #: The thread, if there is to be one. It runs the project's code, and no other thread needs it.
        self.threads: tuple[EngineThread, ...] = ()
        if not off and not once:
            self.threads = (EngineThread("scheduler", self._serve, waits_for_locks=True),)
        self._off = off

    def start(self) -> None:
        """Start the thread; or fire what is due, here and now."""
        if self._once and not self._off:
            self._turn()
        for thread in self.threads:
            thread.start()

    def note(self, are_schedules: bool) -> None:
        """Note whether the database has schedules that are to fire. The first one ends a rest."""
        if (are_schedules and not self._are_schedules) or schedules.version != self._synced:
            self._bell.set()
        self._are_schedules = are_schedules

    def stop(self) -> None:
        """End the thread after the firing it is at; one whose code does not return is left behind."""
        self._stopping.set()
        self._bell.set()
        for thread in self.threads:
            thread.join(bounds.LAST_DUTIES)

    def _serve(self, heartbeat: Heartbeat) -> None:
        while not self._stopping.is_set():
            heartbeat.beat()
            self._bell.clear()
            pause = self._turn()
            if pause >= IDLE:  # for so long nothing needs a connection
                connections.close_all()
            heartbeat.beat(rest=pause)
            self._bell.wait(0.0 if self._stopping.is_set() else pause)

    def _turn(self) -> float:
        """Sync if declarations have changed, then tick; return how long there is nothing to do."""
        try:
            self._sync()
            ticked = fire_due(is_over=self._stopping.is_set)
            self._recovery.succeed()
            if ticked.busy:
                tidy_connections()  # the project's code may have left any behind
            return ticked.pause if ticked.pause < IDLE or self._are_schedules else NONE
        except Exception as error:
            report(error, "queue", "the scheduler failed and carries on", brief=self._recovery.goes_on)
            connections.close_all()
            return self._recovery.fail()

    def _sync(self) -> None:
        version = schedules.version
        if version != self._synced:
            sync()
            self._synced = version
        elif time.monotonic() >= self._restore_at and schedules.names():
            restore()
        else:
            return
        self._restore_at = time.monotonic() + RESTORE_EVERY
