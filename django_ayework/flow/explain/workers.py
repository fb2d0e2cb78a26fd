"""The workers, as explanations need them."""

from __future__ import annotations

from datetime import datetime

from django_ayework.flow.overview import GONE_AFTER
from django_ayework.models import WorkerProcess
from django_ayework.rules.explaining.fleet import WorkerSeen
from django_ayework.store.counts import processes_seen_since
from django_ayework.store.processes import find_process


def live_workers(now: datetime) -> list[WorkerSeen]:
    """Return the workers that are alive."""
    return [seen(process) for process in processes_seen_since(now - GONE_AFTER)]


def find_worker(id: str | None) -> WorkerSeen | None:
    """Return a worker, alive or not, if there is a trace of it."""
    process = find_process(id) if id is not None else None
    return None if process is None else seen(process)


def seen(process: WorkerProcess) -> WorkerSeen:
    """Return a worker's row as a value."""
    return WorkerSeen(
        id=process.id,
        name=process.name,
        host=process.host,
        pid=process.pid,
        queues=tuple(filter(None, process.queues.split(","))),
        concurrency=process.concurrency,
        running=process.running,
        seen_at=process.seen_at,
        stopped_at=process.stopped_at,
    )
