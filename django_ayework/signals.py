"""Signals, sent after commit. ``sender`` is the name of the work's type, where there is one.

A receiver that raises is logged and never disturbs the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from asgiref.sync import async_to_sync
from django.dispatch import Signal

from django_ayework.errors import ends_process

logger = logging.getLogger("django.dispatch")

#: One object for each name: Django tells senders apart by identity.
_names: dict[str, str] = {}


def named(sender: Any) -> Any:
    """Return the one object that stands for a type name; any other sender as it is."""
    return _names.setdefault(sender, sender) if isinstance(sender, str) else sender


class RobustSignal(Signal):
    """A signal whose ``send_robust`` contains whatever a receiver raises.

    Django's own lets SystemExit, KeyboardInterrupt and asyncio.CancelledError through, which would end the
    thread of the engine that sends.
    """

    def is_awaited(self, sender: Any) -> bool:
        """Tell whether any receiver is async."""
        return bool(self._live_receivers(named(sender))[1])

    def send_robust(self, sender: Any, **named_values: Any) -> list[tuple[Any, Any]]:
        """Send to all receivers; return each with its answer, or with the exception it raised.

        Raises an exception that ends the process.
        """
        if not self.receivers:
            return []
        plain, asynchronous = self._live_receivers(sender)
        answers = []
        calls = [(each, each) for each in plain] + [(each, async_to_sync(each)) for each in asynchronous]
        for receiver, call in calls:
            try:
                answer = call(signal=self, sender=sender, **named_values)
            except BaseException as error:
                with suppress(BaseException):  # an error that cannot be printed, or a handler of the log
                    logger.error("Error calling %r in Signal.send_robust()", receiver, exc_info=error)
                if ends_process(error):
                    raise
                answer = error
            answers.append((receiver, answer))
        return answers


class WorkSignal(RobustSignal):
    """A signal whose senders are type names, so that ``connect(receiver, sender="shop.add")`` works."""

    def connect(
        self,
        receiver: Callable[..., Any],
        sender: Any = None,
        weak: bool = True,
        dispatch_uid: Any = None,
    ) -> None:
        """Connect a receiver, to one type if its name is given."""
        super().connect(receiver, named(sender), weak, dispatch_uid)

    def disconnect(self, receiver: Any = None, sender: Any = None, dispatch_uid: Any = None) -> bool:
        """Disconnect a receiver."""
        return super().disconnect(receiver, named(sender), dispatch_uid)

    def send_robust(self, sender: Any, **named_values: Any) -> list[tuple[Any, Any]]:
        """Send to all receivers; return each with its answer, or with the exception it raised."""
        return super().send_robust(named(sender), **named_values)


work_queued = WorkSignal()  # work
work_started = WorkSignal()  # work
work_deferred = WorkSignal()  # work, run_at
work_unblocked = WorkSignal()  # work
work_succeeded = WorkSignal()  # work
work_failed = WorkSignal()  # work, error, will_retry
work_expired = WorkSignal()  # work
work_cancelled = WorkSignal()  # work
group_done = WorkSignal()  # group_id, value
outcome_refused = WorkSignal()  # work_id, cause
batch_announced = RobustSignal()  # batch
error_reported = RobustSignal()  # error, phase
worker_started = RobustSignal()  # worker
worker_stopped = RobustSignal()  # worker
