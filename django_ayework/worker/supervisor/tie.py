"""What ties a worker to its supervisor, in the child."""

from __future__ import annotations

import logging
import socket
import threading

from django_ayework.worker import bounds
from django_ayework.worker.supervisor.line import send
from django_ayework.worker.worker import Worker

logger = logging.getLogger("django_ayework")


class Tie:
    """Tells the supervisor how the worker is, and stops the worker in order when the supervisor has gone."""

    def __init__(self, end: socket.socket, worker: Worker) -> None:
        #: Whether the supervisor is there.
        self.holds = True
        self._end = end
        self._worker = worker
        self._lock = threading.Lock()
        end.settimeout(bounds.BEAT)
        worker.vitals.listeners.append(self.tell)
        threading.Thread(target=self._hold, name="ayework-tie", daemon=True).start()

    def tell(self) -> None:
        """Tell how the worker is."""
        with self._lock:
            send(self._end, self._worker.vitals.signs())

    def _hold(self) -> None:
        """Tell again and again, until the other end of the line is closed; nothing is ever said there."""
        while self.holds:
            self.tell()
            try:
                self.holds = bool(self._end.recv(1))
            except TimeoutError:
                pass
            except OSError:
                self.holds = False
        logger.warning("The supervisor of worker %s has gone; the worker stops.", self._worker.id)
        self._worker.request_stop()
