"""What doers need from the layers above; ``apps`` provides it at start-up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from django_ayework.rules.health import BacklogInfo
from django_ayework.rules.rates import HitResult, Name, Rate

logger = logging.getLogger("django_ayework")


@dataclass(frozen=True, slots=True)
class BacklogPolicy:
    """The hook for a backlog; it is called after so many seconds, and every so many again (None: once)."""

    tell: Callable[[BacklogInfo], object]
    after: float
    every: float | None


def log(error: BaseException, phase: str, message: str) -> None:
    """Log an error."""
    logger.error("%s (%s phase): %s", message, phase, error, exc_info=error)


def no_store(rate: Rate, name: Name) -> HitResult:
    """Raise: shared limits need Django."""
    raise RuntimeError("a limit with shared=True needs the setting STORE; call django.setup() first.")


class Providers:
    """The functions provided so far. Without Django errors are logged, and no backlog is reported."""

    now: Callable[[], datetime] = staticmethod(lambda: datetime.now(UTC))
    report: Callable[[BaseException, str, str], None] = staticmethod(log)
    #: Called in a doer's thread around each task, and when the thread ends.
    tidy_connections: Callable[[], object] = staticmethod(lambda: None)
    close_connections: Callable[[], object] = staticmethod(lambda: None)
    backlog_policy: Callable[[], BacklogPolicy | None] = staticmethod(lambda: None)
    #: Count a start under a name for all processes, or only look at the count.
    shared_hit: Callable[[Rate, Name], HitResult] = staticmethod(no_store)
    shared_peek: Callable[[Rate, Name], HitResult] = staticmethod(no_store)


providers = Providers()


def now() -> datetime:
    """Return the engine's present moment."""
    return providers.now()


def report(error: BaseException, message: str) -> None:
    """Report an error as a worker does; whatever happens, nothing is raised."""
    try:
        providers.report(error, "queue", message)
    except Exception:
        log(error, "queue", message)
        logger.exception("The error could not be reported.")


def guarded(act: Callable[[], object], message: str) -> None:
    """Call ``act``; report whatever it raises."""
    try:
        act()
    except BaseException as error:
        report(error, message)


def run_task(task: Callable[[], object], message: str = "a task of a doer raised") -> None:
    """Run a task in a doer's thread. It meets no broken connection, and leaves none behind."""
    tidy_connections()
    guarded(task, message)
    tidy_connections()


def tidy_connections() -> None:
    """Close this thread's broken and outdated connections."""
    guarded(providers.tidy_connections, "a connection could not be closed")


def close_connections() -> None:
    """Close all connections of this thread, which ends."""
    guarded(providers.close_connections, "a connection could not be closed")
