"""What runs works in slots: threads of their own, and threads that are there for something else."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from django_ayework.store.second_connection import SecondConnection
from django_ayework.worker.slots.loads import Load


class Runner:
    """Runs one load at a time; since when, in monotonic seconds."""

    def __init__(self) -> None:
        self.since = 0.0
        #: The type of the load that it was given with a look at everything, whether it is noted how long that
        #: took, and until when others of the type are given to it without such a look.
        self.type = ""
        self.is_noted = False
        self.trusted_until = 0.0


class SlotThread(Runner):
    """A thread of the slots' own, and what it is given."""

    def __init__(self, serve: Callable[[SlotThread], None], name: str) -> None:
        super().__init__()
        self.inbox: queue.SimpleQueue[Load | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=serve, args=(self,), name=name, daemon=True)
        self.thread.start()


class Guest(Runner):
    """A thread of the engine that may run quick works itself, rather than wake another for them.

    Handlers have connections of their own there, too. The slots write the rest, under their lock.
    """

    def __init__(self) -> None:
        super().__init__()
        self.connections = SecondConnection()
        #: Whether it is in a slot, and has a work to run or will have.
        self.has_slot = False
        #: Whether it runs a work now.
        self.is_running = False
        #: Whether it was stuck in a work: somebody else goes on in its place.
        self.is_left = False
