"""The protocol of doers, their common parts, and a call of one function that waits for its outcome.

The common parts are held tasks, a timer, reports of backlogs, and providers.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from django_ayework.documentation import documented, logged, type_error
from django_ayework.rules.durations import require_aware
from django_ayework.rules.health import BacklogInfo, Episode
from django_ayework.rules.rates import HitResult, Name, Rate
from django_ayework.rules.retry import is_whole

logger = logging.getLogger("django_ayework")


@dataclass(frozen=True, slots=True)
class BacklogPolicy:
    """The hook for a backlog; it is called after so many seconds, and every so many again (None: once)."""

    hook: Callable[[BacklogInfo], object]
    after: float
    every: float | None


def log(error: BaseException, phase: str, message: str) -> None:
    """Log an error."""
    logger.error("%s (%s phase): %s %s", message, phase, error, logged(f"{phase}-phase"), exc_info=error)


def no_store(rate: Rate, name: Name) -> HitResult:
    """Raise: shared limits need Django."""
    raise documented(
        RuntimeError("a limit with shared=True needs the setting STORE; call django.setup() first."),
        "shared-limit-without-django",
    )


class Providers:
    """Functions that Django's side sets. Without them errors are logged, and no backlog is reported."""

    now: Callable[[], datetime] = staticmethod(lambda: datetime.now(UTC))
    report: Callable[[BaseException, str, str], None] = staticmethod(log)
    #: Called in a doer's thread around each task, and when the thread ends.
    tidy_connections: Callable[[], object] = staticmethod(lambda: None)
    close_connections: Callable[[], object] = staticmethod(lambda: None)
    #: The session of a thread that counts for all processes; what it calls before it acts or rests.
    counting: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)
    beat: Callable[[float], object] = staticmethod(lambda rest: None)
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
        logger.exception("The error could not be reported. %s", logged("error-not-reported"))


#: The report of an error at the end of a connection.
NOT_CLOSED = "a connection could not be closed"


def guarded(act: Callable[[], object], message: str) -> None:
    """Call ``act``; report whatever it raises."""
    try:
        act()
    except BaseException as error:
        report(error, message)


def run_task(task: Callable[[], object], message: str = "a task of a doer raised") -> None:
    """Run a task in a doer's thread. It meets no broken connection, and leaves none behind."""
    guarded(providers.tidy_connections, NOT_CLOSED)
    guarded(task, message)
    guarded(providers.tidy_connections, NOT_CLOSED)


def close_connections() -> None:
    """Close all connections of this thread, which ends."""
    guarded(providers.close_connections, NOT_CLOSED)


#: Seconds that an idle thread of a doer waits before it ends.
LINGER = 10.0
#: Seconds after which a timer calls in any case: no clock takes every number.
LONGEST_DELAY = 3600.0

#: A callable that a doer runs. Its return value is dropped.
Task: TypeAlias = Callable[[], object]


def is_void(task: Task) -> bool:
    """Tell whether a task says, by a true attribute ``is_void``, that it has nothing left to do.

    A worker's task is void once its work was cancelled or released. It still has to be called.
    """
    return bool(getattr(task, "is_void", False))


@runtime_checkable
class Doer(Protocol):
    """Runs tasks in threads of its own, within its limits. One object serves one process."""

    def available(self) -> int:
        """Return how many further tasks the doer asks for. It accepts more, and they wait."""
        ...

    def submit(
        self,
        task: Task,
        fairness: str | None = None,
        priority: int = 0,
        created_at: datetime | None = None,
    ) -> None:
        """Accept a task and return at once. Exceptions of the task are reported, and not raised.

        The doer calls the task once. Further calls of a task of a worker have no effect.

        ``fairness`` is a label, such as a customer's. A larger ``priority`` starts sooner. ``created_at`` (an
        aware datetime) is when the task was queued, by default now. The doer decides which of these count.
        """
        ...

    def drained(self) -> None:
        """Wait until no task is held, running or not. Never call it from within a task of the same doer."""
        ...


@runtime_checkable
class TellsRoom(Protocol):
    """A doer that calls listeners when its capacity grows, as all doers of this package do."""

    def on_room(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Register a listener, which is called in any thread whenever capacity may have grown.

        The listener must return soon. Return a function that removes it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """The properties of a task: the argument of a ``key`` function of ``rate_limited``."""

    fairness: str
    priority: int
    created_at: datetime


_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldTask(Hints):
    """A task with its hints, the key it counts for, and its place in the order of submitting."""

    task: Task
    key: str = ""
    number: int = field(default_factory=lambda: next(_numbers))


class Timer:
    """Calls its function once for each time it was set, never twice at the same moment.

    Its thread is there only while the timer is used. It runs within what ``within`` returns.
    """

    def __init__(
        self,
        call: Callable[[], object],
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._call = call
        self._within = within
        self._changed = threading.Condition()
        self._due_at: float | None = None
        self._has_thread = False

    def set(self, delay: float) -> None:
        """Call after this many seconds, or sooner if it was set to call sooner."""
        due_at = time.monotonic() + min(delay, LONGEST_DELAY)
        with self._changed:
            if self._due_at is None or due_at < self._due_at:
                self._due_at = due_at
                self._changed.notify() if self._has_thread else self._start()

    def cancel(self) -> None:
        """Do not call."""
        with self._changed:
            self._due_at = None

    def _start(self) -> None:
        """Start the thread (under the lock). If the system has none left, the next setting tries again."""
        try:
            threading.Thread(target=self._serve, name="ayework-timer", daemon=True).start()
            self._has_thread = True
        except RuntimeError as refused:
            self._due_at = None
            logger.error("A timer could not start its thread: %s %s", refused, logged("thread-not-started"))

    def _serve(self) -> None:
        with ExitStack() as block:
            guarded(lambda: block.enter_context(self._within()), "the timer of a doer has no session")
            while self._is_due():
                providers.beat(0.0)
                run_task(self._call, "the timer of a doer raised")
                providers.beat(math.inf)
            close_connections()

    def _is_due(self) -> bool:
        """Wait until the timer is due; return False when it has not been set for a while."""
        with self._changed:
            ends_at = time.monotonic() + LINGER
            while True:
                now = time.monotonic()
                if self._due_at is not None and now >= self._due_at:
                    self._due_at = None
                    return True
                if self._due_at is None and now >= ends_at:
                    self._has_thread = False
                    return False
                self._changed.wait((self._due_at or ends_at) - now)


#: How many tasks run, and how many wait.
Load: TypeAlias = Callable[[], tuple[int, int]]


class BacklogWatch:
    """Calls the hook for a backlog once some tasks of a doer have waited for too long.

    The doer calls ``update`` whenever it holds more or less. Nothing is set up while there is no hook.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._timer = Timer(self._check)
        self._current: tuple[Episode, BacklogPolicy] | None = None

    def update(self) -> None:
        """Begin or end an episode, as there are tasks waiting or none.

        Never called under the doer's lock, because the load is read under the watch's lock: of two calls at
        the same moment, the later one then sees the latest load.
        """
        try:
            with self._lock:
                _, queued = self._load()
                if queued and self._current is None:
                    self._begin()
                elif not queued and self._current is not None:
                    self._current = None
                    self._timer.cancel()
        except Exception as error:
            report(error, "the backlog of a doer could not be watched")

    def _begin(self) -> None:
        policy = providers.backlog_policy()
        if policy is not None:
            self._current = Episode(time.monotonic(), policy.after, policy.every), policy
            self._timer.set(policy.after)

    def _check(self) -> None:
        """Call the hook if tasks still wait, and set the timer for the next call."""
        with self._lock:
            active, queued = self._load()
            if self._current is None or not queued:
                return
            (episode, policy), now = self._current, time.monotonic()
            behind_for = episode.reported(now)
            if episode.due_at is not None:
                self._timer.set(max(0.0, episode.due_at - now))
        if behind_for is not None:
            policy.hook(BacklogInfo(active=active, queued=queued, behind_for=behind_for))


class BaseDoer:
    """Holds tasks that wait and counts those that run, under one lock."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: list[HeldTask] = []
        self._active = 0
        self._listeners: tuple[Callable[[], object], ...] = ()
        self._watch = BacklogWatch(self._load)

    @abstractmethod
    def _hold(self, held: HeldTask) -> None:
        """Start a task, or keep it until it may start."""

    def submit(
        self,
        task: Task,
        fairness: str | None = None,
        priority: int = 0,
        created_at: datetime | None = None,
    ) -> None:
        """Hold a task until it may start. Exceptions of the task are reported, and not raised.

        Raises TypeError or ValueError for arguments that cannot be used.
        """
        if not callable(task):
            raise type_error(
                "doer-argument", f"expected task to be a function without arguments, got: {task!r}."
            )
        if not is_whole(priority):
            raise type_error("doer-argument", f"expected priority to be a whole number, got: {priority!r}.")
        moment = now() if created_at is None else require_aware(created_at, "created_at")
        self._hold(HeldTask(task=task, fairness=fairness or "", priority=priority, created_at=moment))
        self._watch.update()

    def drained(self) -> None:
        """Wait until no task is held. Never call it from within a task of the same doer."""
        with self._changed:
            self._changed.wait_for(lambda: not self._active and not self._pending)

    def on_room(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Register a listener, called quickly and from any thread whenever capacity may have grown.

        Returns a function that removes the listener.
        """
        with self._changed:
            self._listeners = (*self._listeners, listener)

        def remove() -> None:
            with self._changed:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return remove

    def _notify_listeners(self) -> None:
        """Call the listeners; never under the lock."""
        for listener in self._listeners:
            guarded(listener, "a listener of a doer raised")

    def _load(self) -> tuple[int, int]:
        with self._changed:
            return self._active, len(self._pending)


T = TypeVar("T")


def run(
    doer: Doer,
    function: Callable[[], T],
    *,
    fairness: str | None = None,
    priority: int = 0,
    created_at: datetime | None = None,
    timeout: float | None = None,
) -> T:
    """Run a function in a thread of a doer when its limits allow; wait, and return what it returns.

    Raises what the function raises, and TimeoutError after ``timeout`` seconds; a function that has not
    started by then is not called. The other arguments are those of ``submit()``. Never call it from within a
    task of the same doer: that task may hold the place that the function waits for.

    >>> from django_ayework.doers.bounded import balanced
    >>> run(balanced(2), lambda: 6 * 7)
    42
    """
    future = submitted(doer, function, fairness, priority, created_at)
    try:
        return future.result(timeout)
    except TimeoutError:
        future.cancel()
        raise


async def arun(
    doer: Doer,
    function: Callable[[], T],
    *,
    fairness: str | None = None,
    priority: int = 0,
    created_at: datetime | None = None,
) -> T:
    """See run(). The function is a plain one; it is not called if its caller is cancelled before."""
    from asyncio import wrap_future  # which a process without async code need not load

    future = submitted(doer, function, fairness, priority, created_at, for_async=True)
    return await wrap_future(future)


def submitted(
    doer: Doer,
    function: Callable[[], T],
    fairness: str | None,
    priority: int,
    created_at: datetime | None,
    for_async: bool = False,
) -> Future[T]:
    """Submit a function; return the future of its outcome. One that was cancelled before does not run.

    No coroutine can raise StopIteration, and a future of asyncio may not end with it: ``for_async`` gives a
    RuntimeError instead, as Python does.
    """
    if not callable(function):
        raise type_error("doer-argument", f"expected a function without arguments, got: {function!r}.")
    future: Future[T] = Future()

    def task() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function())
        except BaseException as error:
            if for_async and isinstance(error, StopIteration):
                error = RuntimeError(f"{function!r} raised StopIteration")
            future.set_exception(error)

    doer.submit(task, fairness, priority, created_at)
    return future
