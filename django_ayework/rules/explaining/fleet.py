"""What the workers have to do with it: none there, none for the queue, all of them busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django_ayework.rules.explaining.explanation import Code, Reason
from django_ayework.rules.explaining.words import counted

#: Queues that a sentence names.
NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """A worker by its last heartbeat; no queues means all."""

    id: str
    name: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    running: int
    seen_at: datetime
    stopped_at: datetime | None

    def __str__(self) -> str:
        address = f"{self.host}:{self.pid}"
        return f"{self.name} ({address})" if self.name else address

    def serves(self, queue: str) -> bool:
        """Tell whether the worker takes works of this queue."""
        return not self.queues or queue in self.queues

    @property
    def is_busy(self) -> bool:
        """Whether all its slots were in use when it last told."""
        return self.running >= self.concurrency


def absence(queue: str, workers: Sequence[WorkerSeen]) -> list[Reason]:
    """Return why no live worker takes, or takes back, a work of this queue; nothing when one does."""
    if not workers:
        return no_worker()
    if any(worker.serves(queue) for worker in workers):
        return []
    served = sorted({queue for worker in workers for queue in worker.queues})
    named = ", ".join(map(repr, served[:NAMED])) + (", …" if len(served) > NAMED else "")
    text = (
        f"No live worker serves its queue {queue!r}: {counted(len(workers), 'worker')} "
        f"{'serves' if len(workers) == 1 else 'serve'} {named}."
    )
    facts = {"queue": queue, "served": served, "workers": len(workers)}
    return [Reason(Code.QUEUE_NOT_SERVED, text, facts)]


def no_worker() -> list[Reason]:
    """Return that nobody is there."""
    return [Reason(Code.NO_WORKER, "No worker is alive; start one with: manage.py ayework_worker")]


def press(queue: str, workers: Sequence[WorkerSeen]) -> list[Reason]:
    """Return that all workers which serve the queue are busy, if they are; at least one must serve it."""
    serving = [worker for worker in workers if worker.serves(queue)]
    if not all(worker.is_busy for worker in serving):
        return []
    running = sum(worker.running for worker in serving)
    slots = sum(worker.concurrency for worker in serving)
    whose = "the worker" if len(serving) == 1 else f"the {len(serving)} workers"
    text = (
        f"All slots of {whose} that {'serves' if len(serving) == 1 else 'serve'} its queue {queue!r} were "
        f"busy at the last heartbeat ({running}/{slots})."
    )
    facts = {"queue": queue, "running": running, "concurrency": slots, "workers": len(serving)}
    return [Reason(Code.WORKERS_BUSY, text, facts)]
