"""How the whole thing stands: workers, queues, dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django_ayework.models import WorkerProcess
from django_ayework.rules.states import Status
from django_ayework.store import lanes
from django_ayework.store.clock import clock

#: A worker unseen for this long counts as gone: it beats every 10 seconds.
GONE_AFTER = timedelta(seconds=35)
#: Workers that fell silent are shown for that long, the last ones of them.
STALE_SHOWN_FOR = timedelta(hours=1)
MOST_STALE_SHOWN = 20
#: Dead and scheduled works may be many.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """One queue; ``waiting`` is how many seconds its oldest due work has been so.

    ``lapsed`` are the running works whose lease has lapsed: a worker that serves the queue takes them back.
    ``served`` tells whether a live worker does.
    """

    queue: str
    pending: int
    running: int
    scheduled: int
    blocked: int
    waiting: float
    lapsed: int
    served: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOverview:
    """One worker process; ``silent`` is how many seconds ago it was last seen, ``stale`` whether too long."""

    id: str
    name: str
    host: str
    pid: int
    queues: str
    concurrency: int
    running: int
    started_at: datetime
    seen_at: datetime
    silent: float
    stale: bool
    trouble: str = ""  # threads that are stuck, in words

    def serves(self, queue: str) -> bool:
        """Tell whether the worker takes works of this queue."""
        return not self.queues or queue in self.queues.split(",")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Everything ``ayework_status`` shows. Dead works and scheduled ones are counted up to 10 000."""

    at: datetime
    workers: list[WorkerOverview]
    queues: list[QueueOverview]
    dead: int


def overview() -> Overview:
    """Look at workers, queues and dead letters."""
    clock.synchronise()
    now = clock.now()
    seen = workers(now)
    live = [worker for worker in seen if not worker.stale]
    return Overview(at=now, workers=seen, queues=queues(now, live), dead=lanes.dead_letters(MOST_COUNTED))


def workers(now: datetime) -> list[WorkerOverview]:
    """Return the live workers, then those that fell silent without a farewell."""
    seen = [worker_overview(process, now) for process in lanes.processes_seen_since(now - STALE_SHOWN_FOR)]
    live = [worker for worker in seen if not worker.stale]
    stale = [worker for worker in seen if worker.stale]
    return [*live, *stale[-MOST_STALE_SHOWN:]]


def worker_overview(process: WorkerProcess, now: datetime) -> WorkerOverview:
    """Return one worker."""
    return WorkerOverview(
        id=process.id,
        name=process.name,
        host=process.host,
        pid=process.pid,
        queues=process.queues,
        concurrency=process.concurrency,
        running=process.running,
        started_at=process.started_at,
        seen_at=process.seen_at,
        silent=max(0.0, (now - process.seen_at).total_seconds()),
        stale=now - process.seen_at > GONE_AFTER,
        trouble=process.trouble,
    )


def queues(now: datetime, live: list[WorkerOverview]) -> list[QueueOverview]:
    """Return the queues that have live works; ``live`` are the workers that are alive."""
    depths = lanes.live_depths(MOST_COUNTED)
    lapsed = lanes.lapsed_by_queue(now)
    return [
        queue_overview(
            queue, depths, now, lapsed=lapsed.get(queue, 0), served=any(each.serves(queue) for each in live)
        )
        for queue in sorted({depth.queue for depth in depths})
    ]


def queue_overview(
    queue: str, depths: list[lanes.Depth], now: datetime, *, lapsed: int, served: bool
) -> QueueOverview:
    """Return one queue."""
    mine = {depth.status: depth for depth in depths if depth.queue == queue}
    count = {status: mine[status].works if status in mine else 0 for status in Status}
    due = [mine[status].oldest or now for status in (Status.PENDING, Status.SCHEDULED) if status in mine]
    return QueueOverview(
        queue=queue,
        pending=count[Status.PENDING],
        running=count[Status.RUNNING],
        scheduled=count[Status.SCHEDULED],
        blocked=count[Status.BLOCKED],
        waiting=max(0.0, (now - min([now, *due])).total_seconds()),
        lapsed=lapsed,
        served=served,
    )
