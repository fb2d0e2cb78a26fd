"""Pressure: the hook ``BACKPRESSURE`` is asked before each claim whether to hold back, and for how long."""

from __future__ import annotations

import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync

from django_ayework.conf import get_settings
from django_ayework.flow.events import report, resolved_hook
from django_ayework.flow.settle import Settlement, Success
from django_ayework.heartbeat import project_code
from django_ayework.rules.backpressure import PressureInfo
from django_ayework.rules.states import Outcome


class Pressure:
    """Counts how attempts of this process end, and asks the hook; one worker has one."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._succeeded: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._until = float("-inf")

    def count(self, settlement: Settlement) -> None:
        """Count an attempt by its type and end, if anybody asks; a deferral is neither of both."""
        if get_settings().backpressure is None:
            return
        if not isinstance(settlement.ending, Success) and settlement.ending.outcome is Outcome.DEFERRED:
            return
        ends = self._succeeded if isinstance(settlement.ending, Success) else self._failed
        with self._lock:
            ends[settlement.row.type] += 1

    def pause(self, active: int) -> float:
        """Return for how many seconds nothing is to be claimed; 0 for go on.

        The hook is asked once before each claim, not again while its answer holds. One that raises is
        reported, and holds back for a poll.
        """
        hook = get_settings().backpressure
        left = self._until - self._seconds()
        if hook is None or left > 0:
            return max(0.0, left)
        try:
            pause = float(answer(resolved_hook(hook), self.info(active)) or 0)
        except BaseException as error:
            report(error, "queue", "BACKPRESSURE failed; nothing is claimed for a poll")
            pause = get_settings().poll_interval
        self._until = self._seconds() + pause
        return max(0.0, pause)

    def info(self, active: int) -> PressureInfo:
        """Return what the hook is given."""
        with self._lock:
            return PressureInfo(active=active, succeeded=dict(self._succeeded), failed=dict(self._failed))


def answer(hook: Callable[..., Any], info: PressureInfo) -> Any:
    """Ask the hook, which may be async."""
    asked = async_to_sync(hook) if inspect.iscoroutinefunction(hook) else hook
    with project_code():
        return asked(info)
