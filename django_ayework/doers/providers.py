"""What doers need from the layers above; ``apps`` provides it at start-up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from django_ayework.rules.backpressure import BacklogInfo
from django_ayework.rules.rates import HitResult, Name, Rate

logger = logging.getLogger("django_ayework")


@dataclass(frozen=True, slots=True)
class BacklogPolicy:
    """Whom to tell of a backlog, after how many seconds, and every how many again (None: once)."""

    tell: Callable[[BacklogInfo], object]
    after: float
    every: float | None


def log(error: BaseException, phase: str, message: str) -> None:
    """Log an error."""
    logger.error("%s (%s phase): %s", message, phase, error, exc_info=error)


def no_fleet(rate: Rate, name: Name) -> HitResult:
    """Say that limits of the fleet need Django."""
    raise RuntimeError("a limit with shared=True needs the setting STORE; call django.setup() first.")


class Providers:
    """The functions connected so far. Without Django errors are logged, and nobody hears of a backlog."""

    now: Callable[[], datetime] = staticmethod(lambda: datetime.now(UTC))
    report: Callable[[BaseException, str, str], None] = staticmethod(log)
    #: Called in a doer's thread around each task, and when the thread ends.
    tidy: Callable[[], object] = staticmethod(lambda: None)
    leave: Callable[[], object] = staticmethod(lambda: None)
    backlog_policy: Callable[[], BacklogPolicy | None] = staticmethod(lambda: None)
    #: Count a start for the whole fleet under a name, or only look.
    fleet_hit: Callable[[Rate, Name], HitResult] = staticmethod(no_fleet)
    fleet_peek: Callable[[Rate, Name], HitResult] = staticmethod(no_fleet)


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
    """Act; report whatever it raises."""
    try:
        act()
    except BaseException as error:
        report(error, message)


def perform(task: Callable[[], object]) -> None:
    """Run a task in a doer's thread. It meets no broken connection, and leaves none behind."""
    tidy()
    guarded(task, "a task of a doer raised")
    tidy()


def tidy() -> None:
    """Drop this thread's broken and outlived connections."""
    guarded(providers.tidy, "a connection could not be closed")


def leave() -> None:
    """Close this thread's connections: it ends."""
    guarded(providers.leave, "a connection could not be closed")
