"""Signals, sent after commit. ``sender`` is the name of the work's type.

A receiver that raises is logged and never disturbs the engine.
"""

from __future__ import annotations

from django.dispatch import Signal

work_queued = Signal()  # work
work_started = Signal()  # work
work_deferred = Signal()  # work, run_at
work_succeeded = Signal()  # work
work_failed = Signal()  # work, error, will_retry
work_expired = Signal()  # work
work_cancelled = Signal()  # work
group_done = Signal()  # group_id, value
worker_started = Signal()  # worker
worker_stopped = Signal()  # worker
