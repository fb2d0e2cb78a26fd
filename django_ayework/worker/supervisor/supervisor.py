"""The supervisor: keeps so many children alive, and passes on what its operator wants."""

from __future__ import annotations

import gc
import logging
import selectors
import signal
import time
from contextlib import closing
from types import FrameType

from django_ayework.conf import get_settings
from django_ayework.rules.health import Health, health_of_all
from django_ayework.worker import bounds
from django_ayework.worker.bell import Bell
from django_ayework.worker.health import HealthServer, Report
from django_ayework.worker.serving import REFUSED, StopSignals, handle_signals
from django_ayework.worker.supervisor.births import Closable, Life, give_birth
from django_ayework.worker.supervisor.children import Child, Place

logger = logging.getLogger("django_ayework")

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
            place.give_to(give_birth(place.number, self.life, mine))
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
