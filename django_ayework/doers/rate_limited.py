"""A doer that starts only so many tasks in a period."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from django_ayework.documentation import type_error, value_error
from django_ayework.doers.base import (
    BaseDoer,
    Doer,
    HeldTask,
    Hints,
    Task,
    TellsRoom,
    Timer,
    close_connections,
    is_void,
    now,
    providers,
    report,
)
from django_ayework.doers.bounded import by_age, unlimited
from django_ayework.rules.durations import Seconds, later
from django_ayework.rules.rates import Algorithm, Denied, HitResult, Name, Rate, algorithm_named

#: Tasks that count together: one name for all tasks, or a function that names the count of a task.
Key: TypeAlias = str | Callable[[Hints], str]
#: The names that a round has found beyond their limit, and the seconds until each is not.
Waits: TypeAlias = dict[Name, float]

DEFAULT_KEY = "doer"
#: Seconds between two rounds while tasks wait, at least.
RETRY_FLOOR = 0.05
#: Seconds the pause grows to while the limits cannot be read.
LONGEST_PAUSE = 5.0


@dataclass(frozen=True, slots=True)
class Started:
    """A task that the inner doer holds or runs; that doer reports its exceptions."""

    task: Task
    on_end: Callable[[], object]

    @property
    def is_void(self) -> bool:
        """Whether the task has nothing left to do."""
        return is_void(self.task)

    def __call__(self) -> None:
        try:
            self.task()
        finally:
            self.on_end()


class SharedLimiter:
    """Counts for all processes, through the Store that the settings name."""

    def __init__(self, make: Callable[[], Rate]) -> None:
        self._make = make

    def hit(self, name: Name) -> HitResult:
        """Count a start if it is within the limit."""
        return providers.shared_hit(self._make(), name)

    def peek(self, name: Name) -> HitResult:
        """Return the answer to a hit, without counting one."""
        return providers.shared_peek(self._make(), name)


class LocalLimiter:
    """Counts in this process. Counts that are not used for a while are dropped, in two generations."""

    def __init__(self, make: Callable[[], Rate]) -> None:
        self._make = make
        self._recent: dict[Name, Rate] = {}
        self._older: dict[Name, Rate] = {}
        self._life = make().life
        self._ages_at = later(now(), self._life)

    def hit(self, name: Name) -> HitResult:
        """Count a start if it is within the limit."""
        return self._rate(name).hit(now())

    def peek(self, name: Name) -> HitResult:
        """Return the answer to a hit, without counting one."""
        return self._rate(name).peek(now())

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def _rate(self, name: Name) -> Rate:
        if now() >= self._ages_at:  # once per life of a count
            self._recent, self._older = {}, self._recent
            self._ages_at = later(now(), self._life)
        rate = self._recent.get(name) or self._older.pop(name, None) or self._make()
        self._recent[name] = rate
        return rate


#: Keeps one count per name. An exception means that the count is unknown, and unchanged.
Limiter: TypeAlias = SharedLimiter | LocalLimiter


class Limits:
    """The counts of one doer: those of its keys, and those of the fairness labels if they are limited."""

    def __init__(self, overall: Limiter, per_label: Limiter | None, key: Key | None) -> None:
        self._overall = overall
        self._per_label = per_label
        self._key: Key = DEFAULT_KEY if key is None else key
        #: Labels are counted apart for each doer that has a key of its own.
        self._scope = self._key if isinstance(self._key, str) else DEFAULT_KEY

    def key_of(self, hints: Hints) -> str:
        """Return the key a task counts for; a function that raises is reported, and loses no task."""
        if isinstance(self._key, str):
            return self._key
        try:
            return str(self._key(hints))
        except BaseException as error:
            report(error, "the key function of a rate-limited doer raised")
            return DEFAULT_KEY

    def allow(self, held: HeldTask, waits: Waits) -> bool:
        """Count the start of a task if every limit allows it; return whether it may start.

        A name beyond its limit is recorded, and not asked again in this round. The key is peeked at before
        its label is hit, so that a label does not pay for a start that does not follow.
        """
        key, label = ("key", held.key), ("label", self._scope, held.fairness)
        if key in waits or label in waits:
            return False
        if self._per_label is None:
            return recorded(self._overall.hit(key), key, waits)
        return (
            recorded(self._overall.peek(key), key, waits)
            and recorded(self._per_label.hit(label), label, waits)
            and recorded(self._overall.hit(key), key, waits)
        )


def recorded(result: HitResult, name: Name, waits: Waits) -> bool:
    """Return whether a hit is allowed; record the wait of one that is not."""
    if isinstance(result, Denied):
        waits[name] = result.retry_after
    return bool(result)


class RateLimited(BaseDoer):
    """Hands tasks to another doer, the oldest first, as fast as the limits allow.

    A thread of its own does so in rounds: submitting never waits, not even for a store.
    """

    def __init__(self, limit: int, limits: Limits, inner: Doer) -> None:
        super().__init__()
        self._limit = limit
        self._limits = limits
        self._inner = inner
        self._timer = Timer(self._round, within=lambda: providers.counting())
        self._error_pause = RETRY_FLOOR
        if isinstance(inner, TellsRoom):
            inner.on_room(self._inner_has_room)

    def available(self) -> int:
        """Return how many further tasks the doer asks for, at most those that the inner one asks for.

        Void tasks do not count, and are started now: they use up no start.
        """
        with self._changed:
            pending = list(self._pending)
        waiting = sum(not is_void(held.task) for held in pending)
        if waiting < len(pending):
            self._timer.set(0.0)
        return min(max(0, self._limit - waiting), self._inner.available())

    def drained(self) -> None:
        """Wait until neither this doer nor the inner one holds a task. Never call it from within a task."""
        super().drained()
        self._inner.drained()

    def _hold(self, held: HeldTask) -> None:
        self._keep(replace(held, key=self._limits.key_of(held)))
        self._timer.set(0.0)

    def _keep(self, held: HeldTask) -> None:
        with self._changed:
            bisect.insort(self._pending, held, key=by_age)

    def _inner_has_room(self) -> None:
        if self._load()[1]:
            self._timer.set(0.0)
        self._notify_listeners()

    def _round(self) -> None:
        """Start what may start; if tasks are left, set the timer for the moment that may change."""
        try:
            pause = self._start_allowed()
            self._error_pause = RETRY_FLOOR
        except BaseException as error:  # of a Store or a doer of the project's
            report(error, "a rate-limited doer could not start its tasks and tries again")
            close_connections()
            pause = self._error_pause
            self._error_pause = min(2 * pause, LONGEST_PAUSE)
        if self._load()[1]:
            self._timer.set(max(RETRY_FLOOR, pause))

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
            if is_void(held.task) or self._limits.allow(held, waits):
                self._start(held)
        return min(waits.values(), default=0.0)

    def _start(self, held: HeldTask) -> None:
        """Hand a task to the inner doer; keep it if that does not take it."""
        with self._changed:
            self._pending.remove(held)
            self._active += 1
        try:
            started = Started(held.task, self._end_one)
            self._inner.submit(started, held.fairness, held.priority, held.created_at)
        except BaseException:
            self._keep(held)
            self._end_one()
            raise
        self._notify_listeners()
        self._watch.update()

    def _end_one(self) -> None:
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
        raise type_error(
            "doer-argument", f"expected key to be a text or a function of the task's hints, got: {key!r}."
        )
    if inner is not None and not isinstance(inner, Doer):
        raise type_error("doer-argument", f"expected inner to be a doer, got: {inner!r}.")
    rate = algorithm_named(algorithm)
    overall, per_label = partial(rate, limit, window), label_rate(rate, window, fairness_limit)
    overall()  # refuses values that cannot be used
    if per_label is not None:
        per_label()
    limiter = SharedLimiter if shared else LocalLimiter
    limits = Limits(limiter(overall), limiter(per_label) if per_label else None, key)
    return RateLimited(limit, limits, inner or unlimited())


def label_rate(
    rate: type[Rate], window: Seconds, given: int | tuple[int, Seconds] | None
) -> Callable[[], Rate] | None:
    """Return what makes the count of a fairness label, if labels are limited."""
    if not isinstance(given, tuple):
        return None if given is None else partial(rate, given, window)
    if len(given) != 2:
        raise value_error(
            "doer-argument",
            f"expected fairness_limit to be a number or a pair of number and window, got: {given!r}.",
        )
    return partial(rate, *given)
