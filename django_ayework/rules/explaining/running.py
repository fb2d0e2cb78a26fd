"""A work that a worker holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django_ayework.rules.direct import DIRECT
from django_ayework.rules.explaining.explanation import Code, Reason
from django_ayework.rules.explaining.fleet import WorkerSeen
from django_ayework.rules.explaining.words import moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Who holds a work; ``seen`` is None when there is no trace of that worker."""

    worker: str | None
    seen: WorkerSeen | None
    attempt: int
    attempts: int
    started_at: datetime | None
    leased_until: datetime | None

    @property
    def is_direct(self) -> bool:
        """Whether the work has skipped the queue, and no worker has it."""
        return (self.worker or "").startswith(DIRECT)


def running(hold: Hold, now: datetime, gone_after: timedelta) -> list[Reason]:
    """Return who runs the work, and whether it still does."""
    return [held(hold, now), *life(hold, now, gone_after), *lapse(hold, now)]


def held(hold: Hold, now: datetime) -> Reason:
    """Return who runs it since when."""
    who = (
        "The process that enqueued it"
        if hold.is_direct
        else f"Worker {hold.seen or hold.worker or 'unknown'}"
    )
    since = f" since {moment(hold.started_at, now)}" if hold.started_at else ""
    lease = f", leased until {moment(hold.leased_until, now)}" if hold.leased_until else ""
    text = f"{who} has it{since}, for attempt {hold.attempt} of {hold.attempts}{lease}."
    facts = {
        "worker": hold.worker,
        "host": hold.seen.host if hold.seen else None,
        "pid": hold.seen.pid if hold.seen else None,
        "attempt": hold.attempt,
        "attempts": hold.attempts,
        "started_at": hold.started_at,
        "leased_until": hold.leased_until,
    }
    return Reason(Code.RUNNING, text, facts)


def life(hold: Hold, now: datetime, gone_after: timedelta) -> list[Reason]:
    """Return what is wrong with the worker, if anything is."""
    seen = hold.seen
    if hold.is_direct:
        return []
    if seen is None:
        text = "There is no trace of that worker; while its lease lasts, nobody else takes the work."
        return [Reason(Code.WORKER_UNKNOWN, text, {"worker": hold.worker})]
    if seen.stopped_at is not None:
        text = f"That worker stopped at {moment(seen.stopped_at, now)}."
        return [Reason(Code.WORKER_STOPPED, text, {"stopped_at": seen.stopped_at})]
    if now - seen.seen_at > gone_after:
        text = f"That worker was last seen at {moment(seen.seen_at, now)}."
        return [Reason(Code.WORKER_SILENT, text, {"seen_at": seen.seen_at})]
    return []


def lapse(hold: Hold, now: datetime) -> list[Reason]:
    """Return that the lease has lapsed, if so, and what comes of it."""
    if hold.leased_until is None or hold.leased_until >= now:
        return []
    spent = hold.attempt >= hold.attempts
    fate = "ends it as dead, for this was its last attempt" if spent else "takes it back to try it again"
    text = f"Its lease has lapsed: the next worker that serves its queue and type {fate}."
    return [Reason(Code.LEASE_LAPSED, text, {"leased_until": hold.leased_until, "last_attempt": spent})]
