"""Several worker processes on one host, kept alive by one that does no work itself."""

from __future__ import annotations

import gc
import logging
import os
import selectors
import signal
import time
from contextlib import closing, suppress
from dataclasses import replace
from types import FrameType

from django_ayework.conf import get_settings
from django_ayework.rules.health import (
    Health,
    Phase,
    Signs,
    health_of,
    health_of_all,
    quick_deaths,
    restart_pause,
    signs_of_nobody,
)
from django_ayework.worker import bounds
from django_ayework.worker.child import Closable, Life, StartedChild, start_child
from django_ayework.worker.health import HealthServer, Report
from django_ayework.worker.serving import REFUSED, StopSignals, handle_signals
from django_ayework.worker.threads import Bell

# --- children ---
# Children, and the places they take: a place has one child at work, and perhaps one that retires.

logger = logging.getLogger("django_ayework")


class Child:
    """One worker process, as its supervisor sees it. Times are monotonic seconds."""

    def __init__(self, started: StartedChild) -> None:
        self.pid = started.pid
        self.line = started.line
        self.started_at = self.heard_at = time.monotonic()
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

    def give_to(self, started: StartedChild) -> None:
        """Let a new child take the place."""
        self.children.append(Child(started))
        logger.info("Process %d of the supervisor is %d.", self.number, started.pid)

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
        lived = time.monotonic() - child.started_at
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


# --- supervisor ---
# The supervisor: keeps so many children alive, and passes on what its operator wants.

#: Seconds to sleep at most when there is no news.
LOOK_EVERY = 1.0


class Supervisor:
    """Runs ``size`` children in one thread, as a process with several cannot safely fork.

    Each child lives the ``life`` it is given: a worker tied to this supervisor. The first signal is passed
    on, the second ends all of them at once.
    """

    def __init__(self, size: int, life: Life, server: HealthServer | None = None) -> None:
        self.places = [Place(number) for number in range(1, size + 1)]
        self.life = life
        self.server = server
        self._heard = StopSignals()
        self._stop_by: float | None = None
        self._in_order = True
        self._bell = Bell()
        if server is not None:
            server.ask = self.report

    def run(self) -> int:
        """Keep the children alive until told to stop, or until a burst is over; return the exit status.

        It is 0 when all of them stopped in order, 1 when one did not or refused to start, and 128 and the
        number of the signal after a second signal.
        """
        with closing(self._bell):
            self._hear()
            gc.freeze()  # what is here before the first fork stays shared, as no collection touches it
            while not self._is_over():
                self._act_on_signals()
                self._fill_places()
                self._await_news()
                self._bury_the_dead()
        return 128 + self._heard.numbers[1] if self._heard.is_urgent else int(not self._in_order)

    def report(self) -> Report:
        """Return how all of them are."""
        signs = [child.signs() for child in self._children()]
        if self._stop_by is not None:
            return Health(live=True, ready=False, reasons=("the supervisor is stopping",)), signs
        members = [(f"process {place.number}", place.health()) for place in self.places]
        return health_of_all(members), signs

    def _hear(self) -> None:
        """Listen to the operator, and to the end of children."""
        self._bell.hear_signals()
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        handle_signals(self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._heard.note(number)

    def _is_over(self) -> bool:
        if self._children():
            return False
        return self._stop_by is not None or all(place.is_done for place in self.places)

    def _act_on_signals(self) -> None:
        """Stop the children in order, then those that are left by force: at a second signal, or too late."""
        if self._heard.numbers and self._stop_by is None:
            self._stop()
        if self._stop_by is not None and (self._heard.is_urgent or time.monotonic() > self._stop_by):
            for child in self._children():
                child.kill()

    def _stop(self) -> None:
        """Ask all children to stop in order."""
        self._stop_by = time.monotonic() + patience()
        logger.info("The supervisor stops %d processes.", len(self._children()))
        for child in self._children():
            child.stop()

    def _fill_places(self) -> None:
        """Start what is to be there."""
        if self._stop_by is not None:
            return
        for place in self.places:
            if place.is_vacant(time.monotonic()):
                self._fill(place)

    def _fill(self, place: Place) -> None:
        mine: list[Closable] = [self._bell, *(child.line for child in self._children())]
        if self.server is not None:
            mine.append(self.server)
        try:
            place.give_to(start_child(place.number, self.life, mine))
        except OSError as error:
            place.delay(error)

    def _await_news(self) -> None:
        """Sleep until a child tells something, a signal comes, somebody asks, or it is time to act."""
        with selectors.DefaultSelector() as selector:
            for child in self._children():
                if not child.line.has_ended:
                    selector.register(child.line, selectors.EVENT_READ, child.listen)
            selector.register(self._bell, selectors.EVENT_READ, self._bell.hush)
            if self.server is not None:
                selector.register(self.server, selectors.EVENT_READ, self.server.answer)
            for key, _ in selector.select(self._pause()):
                key.data()

    def _pause(self) -> float:
        now = time.monotonic()
        moments = [place.start_at for place in self.places if not place.children and not place.is_done]
        return max(0.0, min([LOOK_EVERY, *(moment - now for moment in moments)]))

    def _bury_the_dead(self) -> None:
        for place in self.places:
            for child in [child for child in place.children if child.has_ended()]:
                if self._stop_by is None and child.exit_code == REFUSED:
                    place.children.remove(child)
                    self._in_order = False
                    self._stop()
                elif self._stop_by is None:
                    place.bury(child)
                else:
                    place.children.remove(child)
                    self._in_order = self._in_order and child.exit_code in (0, -signal.SIGTERM)

    def _children(self) -> list[Child]:
        return [child for place in self.places for child in place.children]


def patience() -> float:
    """Return how many seconds children have to stop."""
    return get_settings().shutdown_grace + bounds.FAREWELL + bounds.PATIENCE
