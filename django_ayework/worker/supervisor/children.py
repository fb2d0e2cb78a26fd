"""Children, and the places they take: a place has one child at work, and perhaps one that retires."""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace

from django_ayework.rules.health import Health, Phase, Signs, health_of, signs_of_nobody
from django_ayework.rules.restarts import quick_deaths, restart_pause
from django_ayework.worker import bounds
from django_ayework.worker.supervisor.births import Born

logger = logging.getLogger("django_ayework")


class Child:
    """One worker process, as its supervisor sees it. Times are monotonic seconds."""

    def __init__(self, born: Born) -> None:
        self.pid = born.pid
        self.line = born.line
        self.born_at = self.heard_at = time.monotonic()
        self.told = signs_of_nobody(Phase.STARTING, {"starting": 0.0})
        self.exit_code: int | None = None
        self._is_killed = False

    def listen(self) -> None:
        """Take in what it tells."""
        if (told := self.line.latest()) is not None:
            self.told, self.heard_at = told, time.monotonic()

    def signs(self) -> Signs:
        """Return how it is; what it told some time ago has been so for longer by now."""
        since = time.monotonic() - self.heard_at
        silent = {name: seconds + since for name, seconds in self.told.silent.items()}
        return replace(self.told, pid=self.pid, silent=silent)

    @property
    def retires(self) -> bool:
        """Whether it makes room for another: it has done enough, and claims no more."""
        return self.told.phase in (Phase.RETIRING, Phase.RETIRED) and not self.is_barren

    @property
    def is_barren(self) -> bool:
        """Whether it has run nothing."""
        return not self.told.attempts and not self.told.running

    def stop(self) -> None:
        """Ask it to stop in order."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; its works are left to their leases."""
        if not self._is_killed:
            self._is_killed = True
            logger.error("Process %d is killed: its works run again once their leases lapse.", self.pid)
            self._send(signal.SIGKILL)

    def has_ended(self) -> bool:
        """Look whether it has ended; its ``exit_code`` is negative for a signal that killed it."""
        if self.exit_code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has waited for it
                pid, status = self.pid, 0
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)
                self.listen()
                self.line.close()
        return self.exit_code is not None

    def _send(self, number: int) -> None:
        if self.exit_code is None:
            os.kill(self.pid, number)


class Place:
    """One of the processes that there are to be, whoever takes it at the moment."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.children: list[Child] = []
        self.start_at = time.monotonic()
        self.is_done = False
        self._quick_deaths = 0

    def is_vacant(self, now: float) -> bool:
        """Tell whether to start a child: nobody is at work here, and at most one still retires."""
        settled = len(self.children) > 1 or any(not child.retires for child in self.children)
        return not settled and not self.is_done and now >= self.start_at

    def give_to(self, born: Born) -> None:
        """Let a new child take the place."""
        self.children.append(Child(born))
        logger.info("Process %d of the supervisor is %d.", self.number, born.pid)

    def bury(self, child: Child) -> None:
        """Note the end of a child, and when the next one may start."""
        self.children.remove(child)
        if child.told.phase is Phase.FINISHED:
            self.is_done = True
        elif child.told.phase is Phase.RETIRED and not child.is_barren:
            self._quick_deaths = 0
        elif child.retires:  # its successor is there
            logger.error("Process %d died while it retired: %s.", child.pid, how(child))
        else:
            self._mourn(child)

    def delay(self, error: OSError) -> None:
        """Note that no child could be started."""
        self._put_off(0.0)
        logger.error("Process %d could not be started (%s); next try %s.", self.number, error, self._when())

    def health(self) -> Health:
        """Judge whoever is at work here."""
        working = [child for child in self.children if not child.retires]
        if working:
            return health_of(working[-1].signs(), bounds.STALL)
        return Health(live=True, ready=False, reasons=(f"it is to be started {self._when()}",))

    def _mourn(self, child: Child) -> None:
        lived = time.monotonic() - child.born_at
        self._put_off(lived)
        logger.error(
            "Process %d (number %d) has ended after %.0f s: %s. It is replaced %s.",
            child.pid, self.number, lived, how(child), self._when(),
        )  # fmt: skip

    def _put_off(self, lived: float) -> None:
        self._quick_deaths = quick_deaths(self._quick_deaths, lived)
        self.start_at = time.monotonic() + restart_pause(self._quick_deaths)

    def _when(self) -> str:
        seconds = self.start_at - time.monotonic()
        return f"in {seconds:.0f} s" if seconds > 0 else "at once"


def how(child: Child) -> str:
    """Return in words how a child ended."""
    if child.told.phase is Phase.STOPPED:
        return "somebody told it to stop"
    if child.told.phase is Phase.RETIRED:
        return "it retired before it ran anything (is --max-memory too small?)"
    if child.exit_code is None or child.exit_code >= 0:
        return f"exit status {child.exit_code}"
    with suppress(ValueError):
        return signal.Signals(-child.exit_code).name
    return f"signal {-child.exit_code}"
