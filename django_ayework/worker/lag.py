"""Lag: the hook ``ON_BACKLOG`` is told once a worker has been behind for too long."""

from __future__ import annotations

import time
from collections.abc import Callable

from django_ayework.flow.backlog import backlog_policy
from django_ayework.flow.events import report
from django_ayework.rules.backlog import BacklogInfo, Episode
from django_ayework.store.counts import depths_of


class Lag:
    """Follows the claiming loop of one worker: it is behind while works could fill more room than it has."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._episode: Episode | None = None

    def note(self, behind: bool, active: int, serves: Callable[[str], bool]) -> None:
        """Note one turn of the loop. A turn that had room for everything it found ends the episode."""
        policy = backlog_policy() if behind else None
        if policy is None:
            self._episode = None
            return
        now = self._seconds()
        self._episode = self._episode or Episode(now, policy.after, policy.every)
        behind_for = self._episode.told(now)
        if behind_for is None:
            return
        waiting = queued(serves)
        if waiting == 0:  # the slots are full, and that is all there is to do
            self._episode = None
            return
        policy.tell(BacklogInfo(active=active, queued=waiting, behind_for=behind_for))


def queued(serves: Callable[[str], bool]) -> int | None:
    """Count the works that are due in the queues served; None when the database cannot say."""
    try:
        return sum(depth.works for depth in depths_of("pending") if serves(depth.queue))
    except Exception as error:
        report(error, "queue", "the works that are due could not be counted")
        return None
