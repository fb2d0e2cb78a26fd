"""A doer that starts only so many tasks in a while."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from django_ayework.doers import seams
from django_ayework.doers.alarm import Alarms, ThreadAlarm
from django_ayework.doers.base import Holder
from django_ayework.doers.held import Held, held_of
from django_ayework.doers.limiter import FleetLimiter, LocalLimiter
from django_ayework.doers.limits import Key, Limits, Waits
from django_ayework.doers.protocol import Doer, Task, TellsRoom
from django_ayework.doers.unlimited import Unlimited
from django_ayework.doers.watch import BacklogWatch, Watch
from django_ayework.rules.durations import Seconds
from django_ayework.rules.rates import Algorithm, Rate, algorithm_named
from django_ayework.rules.selection import by_age

#: Seconds between two looks at tasks that could not start, at least.
RETRY_FLOOR = 0.05
#: Seconds the pause grows to while the limits cannot be read.
LONGEST_PAUSE = 5.0


class RateLimited(Holder):
    """Hands tasks to another doer, the oldest first, as fast as the limits allow.

    A thread of its own does so in rounds: submitting never waits, not even for a store.
    """

    def __init__(
        self,
        limit: int,
        limits: Limits,
        inner: Doer,
        alarms: Alarms = ThreadAlarm,
        watch: Watch = BacklogWatch,
    ) -> None:
        super().__init__(watch)
        self._limit = limit
        self._limits = limits
        self._inner = inner
        self._alarm = alarms(self._round)
        self._error_pause = RETRY_FLOOR
        if isinstance(inner, TellsRoom):
            inner.on_room(self._inner_has_room)

    def available(self) -> int:
        """Return how many more tasks are welcome: ``limit`` less what waits, but no more than may run."""
        with self._changed:
            welcome = max(0, self._limit - len(self._pending))
        return min(welcome, self._inner.available())

    def submit(
        self,
        task: Task,
        fairness: str | None = None,
        priority: int = 0,
        created_at: datetime | None = None,
    ) -> None:
        """Hold a task until the limits allow its start; what it raises is reported and swallowed."""
        held = held_of(task, fairness, priority, created_at)
        held = replace(held, key=self._limits.key_of(held))
        self._keep(held)
        self._alarm.set(0.0)
        self._watch.look()

    def drained(self) -> None:
        """Wait until no task is held, by the inner doer neither. Never call it from within a task."""
        super().drained()
        self._inner.drained()

    def _keep(self, held: Held) -> None:
        """Put a task in its place among those that wait."""
        with self._changed:
            bisect.insort(self._pending, held, key=by_age)

    def _inner_has_room(self) -> None:
        """See at once whether something can start, and pass the news on."""
        if self._load()[1]:
            self._alarm.set(0.0)
        self._tell_room()

    def _round(self) -> None:
        """Start what may start; if something is left, come back when that may have changed."""
        try:
            pause = self._start_allowed()
            self._error_pause = RETRY_FLOOR
        except Exception as error:
            seams.report(error, "a rate-limited doer could not start its tasks and tries again")
            pause = self._error_pause
            self._error_pause = min(2 * pause, LONGEST_PAUSE)
        if self._load()[1]:
            self._alarm.set(max(RETRY_FLOOR, pause))

    def _start_allowed(self) -> float:
        """Start, the oldest first, what the limits allow; return the seconds until the next may start.

        Tasks beyond a limit are passed over, so that those of others need not wait behind them.
        """
        waits: Waits = {}
        with self._changed:
            oldest_first = list(self._pending)
        for held in oldest_first:
            if self._inner.available() <= 0:
                return 0.0
            if self._limits.allow(held, waits):
                self._start(held)
        return min(waits.values(), default=0.0)

    def _start(self, held: Held) -> None:
        """Hand a task to the inner doer; keep it if that does not take it."""
        with self._changed:
            self._pending.remove(held)
            self._active += 1
        try:
            self._inner.submit(partial(self._do, held.task), held.fairness, held.priority, held.created_at)
        except Exception:
            self._keep(held)
            self._count_out()
            raise
        self._tell_room()
        self._watch.look()

    def _do(self, task: Task) -> None:
        """Run a task in a thread of the inner doer, which reports what it raises."""
        try:
            task()
        finally:
            self._count_out()

    def _count_out(self) -> None:
        """Count one task less."""
        with self._changed:
            self._active -= 1
            self._changed.notify_all()


def rate_limited(
    limit: int,
    window: Seconds,
    algorithm: Algorithm = "fixed",
    shared: bool = False,
    key: Key | None = None,
    inner: Doer | None = None,
    fairness_limit: int | tuple[int, Seconds] | None = None,
) -> RateLimited:
    """Return a doer that starts at most ``limit`` tasks per ``window`` (seconds or timedelta).

    ``algorithm`` says how they are counted: ``"fixed"``, ``"sliding"`` or ``"token"``. With ``shared=True``
    all processes share one count, kept in the Store (setting ``STORE``). ``key`` names the count (``"doer"``,
    unless given), or is a function of the task's ``Hints`` that names it: then each name has a count of its
    own. ``fairness_limit`` bounds each ``fairness`` label besides: a number per ``window``, or a pair of
    number and window. ``inner`` runs what may start (``unlimited()``, unless given).

    Raises TypeError or ValueError for values that cannot be used.

    Example::

        doer = rate_limited(100, timedelta(minutes=1), shared=True, key="mail-api", inner=balanced(8))
    """
    if key is not None and not isinstance(key, str) and not callable(key):
        raise TypeError(f"expected key to be a text or a function of the task's hints, got: {key!r}.")
    if inner is not None and not isinstance(inner, Doer):
        raise TypeError(f"expected inner to be a doer, got: {inner!r}.")
    rate = algorithm_named(algorithm)
    limiter = FleetLimiter if shared else LocalLimiter
    overall, per_label = partial(rate, limit, window), label_rate(rate, window, fairness_limit)
    limits = Limits(limiter(overall), limiter(per_label) if per_label else None, key)
    return RateLimited(overall().limit, limits, inner or Unlimited())


def label_rate(
    rate: type[Rate], window: Seconds, given: int | tuple[int, Seconds] | None
) -> Callable[[], Rate] | None:
    """Return what makes the count of a fairness label, if labels are limited."""
    if given is None:
        return None
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ValueError(
                f"expected fairness_limit to be a number or a pair of number and window, got: {given!r}."
            )
        return partial(rate, *given)
    return partial(rate, given, window)
