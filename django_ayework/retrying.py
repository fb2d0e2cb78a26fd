"""Calling a function again until it succeeds, in any process: the retry policy of works, without a work.

>>> answers = iter([OSError("away"), "there"])
>>> def ask(state: State) -> str:
...     answer = next(answers)
...     if isinstance(answer, Exception):
...         raise answer
...     return f"{answer} at attempt {state.attempt} of {state.attempts}"
>>> call(ask, retry=Retry(attempts=3, base=0))
'there at attempt 2 of 3'
"""

from __future__ import annotations

import asyncio
import random as randomness
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeAlias, TypedDict, TypeVar, Unpack

from django_ayework.errors import Abort, Defer, Reschedule
from django_ayework.rules.durations import seconds
from django_ayework.rules.retry import Retry, RetryPolicy, backoff

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class State:
    """The state of a call: the number of the attempt (from 1), their maximum, and the last error.

    ``started_at`` is when the first attempt began, ``last_attempt_at`` when the previous attempt began.
    """

    attempt: int
    attempts: int
    started_at: datetime
    last_attempt_at: datetime | None = None
    last_error: Exception | None = None


#: Decides about an error: False ends it; True or None tries again; a number of seconds tries again, and not
#: before they have passed.
On: TypeAlias = Callable[[Exception, State], "bool | float | None"]

#: Stands for an ``error_result`` that is not given.
RAISE: Final[Any] = object()


def unless_told(error: Exception, state: State) -> bool:
    """Try again, except after an instruction to the engine: ``Abort``, ``Defer`` or ``Reschedule``."""
    return not isinstance(error, (Abort, Defer, Reschedule))


class Options(TypedDict, Generic[T], total=False):
    """The options of ``call()`` and ``acall()`` besides the function; see there."""

    retry: Retry | None
    on: On
    on_success: Callable[[T, State], object] | None
    on_retry: Callable[[Exception, State, float], object] | None
    on_error: Callable[[BaseException, State], object] | None
    error_result: T
    random: Callable[[], float]
    now: Callable[[], datetime]


def call(
    function: Callable[[State], T],
    *,
    sleep: Callable[[float], object] = time.sleep,
    **options: Unpack[Options[T]],
) -> T:
    """Call a function with its ``State`` until it returns; return what it returns.

    ``retry`` is the policy, over the built-in defaults: three attempts, and a pause that doubles. ``on(error,
    state)`` decides about each error: False stops, True or None tries again, a number is the least pause in
    seconds. By default ``Abort``, ``Defer`` and ``Reschedule`` stop. ``on_success(value, state)`` is called
    with the result, ``on_retry(error, state, pause)`` before each pause, ``on_error(error, state)`` when no
    attempt follows. ``error_result`` is returned then, in place of raising. ``sleep``, ``random`` (from 0 to
    1) and ``now`` are there for tests.

    Raises the last error; after ``Abort`` its cause, if that is an exception. An error that is no
    ``Exception``, such as KeyboardInterrupt, is raised at once.

    Example::

        prices = retrying.call(lambda state: fetch(url), retry=Retry(attempts=5, base=0.2))
    """
    loop: Loop[T] = Loop(**options)
    while loop.goes_on():
        with loop as state:
            loop.value = function(state)
        if loop.pause is not None:
            sleep(loop.pause)
    return loop.result()


async def acall(
    function: Callable[[State], Awaitable[T]],
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    **options: Unpack[Options[T]],
) -> T:
    """Await an async function until it returns; see ``call()``. Hooks are plain functions here, too."""
    loop: Loop[T] = Loop(**options)
    while loop.goes_on():
        with loop as state:
            loop.value = await function(state)
        if loop.pause is not None:
            await sleep(loop.pause)
    return loop.result()


class Loop(Generic[T]):
    """The attempts of one call: their states, the pauses between them, and the end.

    As a context manager it is one attempt. An ``Exception`` from the block is taken as the failure of that.
    """

    value: T

    def __init__(self, **options: Unpack[Options[T]]) -> None:
        self._on: On = options.get("on", unless_told)
        self._on_success = options.get("on_success")
        self._on_retry = options.get("on_retry")
        self._on_error = options.get("on_error")
        self._error_result: T = options.get("error_result", RAISE)
        self._random = options.get("random", randomness.random)
        self._now = options.get("now", lambda: datetime.now(UTC))
        self._policy = RetryPolicy.resolve(options.get("retry"))
        self._state = State(0, self._policy.attempts, self._now())
        self._began_at = self._state.started_at
        self._error: Exception | None = None
        self._is_told = False
        #: Seconds until the next attempt; None when none follows.
        self.pause: float | None = 0.0

    def goes_on(self) -> bool:
        """Tell whether an attempt follows."""
        return self.pause is not None

    def __enter__(self) -> State:
        self._state = replace(self._state, attempt=self._state.attempt + 1)
        self._began_at = self._now()
        return self._state

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        self._error = error
        self.pause = None if error is None else self._pause_after(error)
        return True

    def _pause_after(self, error: Exception) -> float | None:
        """Return the seconds until the next attempt; None when there is none."""
        state = self._state
        self._state = replace(state, last_error=error, last_attempt_at=self._began_at)
        advice = self._on(error, state)
        if advice is False or state.attempt >= state.attempts:
            self._is_told = advice is False
            return None
        pause = backoff(state.attempt, self._policy, self._random()).total_seconds()
        if advice is not None and advice is not True:
            pause = max(seconds(advice, "what on() returns"), pause)
        if self._on_retry is not None:
            self._on_retry(error, state, pause)
        return pause

    def result(self) -> T:
        """Return the result of the last attempt, or what stands for its error; otherwise raise the error."""
        if self._error is None:
            if self._on_success is not None:
                self._on_success(self.value, self._state)
            return self.value
        raised: BaseException = self._error
        if isinstance(raised, Abort) and self._is_told and isinstance(raised.cause, BaseException):
            raised = raised.cause  # an Abort that has stopped the call
        if self._on_error is not None:
            self._on_error(raised, self._state)
        if self._error_result is not RAISE:
            return self._error_result
        raise raised
