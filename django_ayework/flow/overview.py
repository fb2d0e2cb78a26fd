"""The overview that ``ayework_status`` shows: workers, queues, dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django_ayework.models import WorkerProcess
from django_ayework.rules.states import Status
from django_ayework.store import lanes
from django_ayework.store.clock import clock

#: A worker without a heartbeat for this long counts as gone; one is due every 10 seconds.
GONE_AFTER = timedelta(seconds=35)
#: Stale workers are shown for this long, and at most this many of them.
STALE_SHOWN_FOR = timedelta(hours=1)
MOST_STALE_SHOWN = 20
#: The columns of a worker that the overview shows as they are stored.
STORED = (
    "id", "name", "host", "pid", "queues", "concurrency", "running", "started_at", "seen_at", "trouble",
)  # fmt: skip
#: Dead and scheduled works, which may be many, are counted up to this number.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """One queue; ``waiting`` is for how many seconds its oldest due work has been due.

    ``lapsed`` are the running works whose lease has lapsed: a worker that serves the queue reclaims them.
    ``served`` tells whether a live worker serves the queue.
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
    """One worker process; ``silent`` is seconds since its last heartbeat, too many if it is ``stale``."""

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
    """Read the state of workers, queues and dead letters."""
    clock.synchronise()
    now = clock.now()
    seen = workers(now)
    live = [worker for worker in seen if not worker.stale]
    return Overview(at=now, workers=seen, queues=queues(now, live), dead=lanes.dead_letters(MOST_COUNTED))


def workers(now: datetime) -> list[WorkerOverview]:
    """Return the live workers, then those that became silent without an orderly stop."""
    seen = [worker_overview(process, now) for process in lanes.processes_seen_since(now - STALE_SHOWN_FOR)]
    live = [worker for worker in seen if not worker.stale]
    stale = [worker for worker in seen if worker.stale]
    return [*live, *stale[-MOST_STALE_SHOWN:]]


def worker_overview(process: WorkerProcess, now: datetime) -> WorkerOverview:
    """Return one worker."""
    return WorkerOverview(
        silent=max(0.0, (now - process.seen_at).total_seconds()),
        stale=now - process.seen_at > GONE_AFTER,
        **{column: getattr(process, column) for column in STORED},
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
