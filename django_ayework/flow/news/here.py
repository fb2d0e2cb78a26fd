"""Who in this process is to be told: workers of what is due, whoever waits of what has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TypeAlias

from django_ayework.forking import after_fork_in_child
from django_ayework.rules.news import Due

DueListener: TypeAlias = Callable[[Due], object]
#: Called with True if something has ended that it waits for, with False if that may be.
EndListener: TypeAlias = Callable[[bool], object]

_workers: set[DueListener] = set()


def add_due_listener(listener: DueListener) -> None:
    """Let this be called whenever works become due, or will be soon, by a commit of this process."""
    _workers.add(listener)


def remove_due_listener(listener: DueListener) -> None:
    """Forget the listener."""
    _workers.discard(listener)


def tell_due(due: Due) -> None:
    """Wake the workers of this process."""
    for listener in list(_workers):
        listener(due)


class Waiters:
    """Who waits in this process, by the ids of works, groups and chains."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as in a forked process: those who waited are in its parent."""
        self._lock = threading.Lock()
        self._by_id: dict[str, set[EndListener]] = {}

    def add(self, ids: Collection[str], listener: EndListener) -> None:
        """Call this when any of these has ended."""
        with self._lock:
            for id in ids:
                self._by_id.setdefault(id, set()).add(listener)

    def remove(self, ids: Collection[str], listener: EndListener) -> None:
        """Forget the listener."""
        with self._lock:
            for id in ids:
                listeners = self._by_id.get(id, set())
                listeners.discard(listener)
                if not listeners:
                    self._by_id.pop(id, None)

    def tell(self, ids: Collection[str] | None) -> None:
        """Wake those who wait for these; None is for "any"."""
        if not self._by_id:
            return
        with self._lock:
            named = self._by_id if ids is None else [id for id in ids if id in self._by_id]
            listeners = {listener for id in named for listener in self._by_id[id]}
        for listener in listeners:
            listener(ids is not None)


waiters = Waiters()
after_fork_in_child(waiters.forget)
after_fork_in_child(_workers.clear)
