"""Every exception of the package.

Each class's docstring is its default message and says what to do about it. Facts a caller may act on
travel as attributes; ``id`` is the id of the work concerned, or None. ``code`` is the entry of the message in
the documentation, and ``docs_url`` its address, which a traceback shows below the message.
"""

from __future__ import annotations

import difflib
import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import ClassVar, ParamSpec

from django_ayework.documentation import documented, entry_url, type_error

P = ParamSpec("P")


class AyeworkError(Exception):
    """Something went wrong in django_ayework."""

    #: The entry of messages that name no other one; empty without an entry.
    entry: ClassVar[str] = ""

    def __init__(self, message: str | None = None, *, id: str | None = None, code: str = "") -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").replace("``", "").split()))
        self.id = id
        self.code = code or self.entry
        if self.code:
            documented(self, self.code)

    @property
    def docs_url(self) -> str | None:
        """The address of the message's entry in the documentation; None without one."""
        return entry_url("errors", self.code) if self.code else None


class ImproperWork(AyeworkError, TypeError):
    """A work is described in a way that cannot be run; see the message of the decorator."""


class UnknownWorkType(AyeworkError, LookupError):
    """No work of this name is registered; check the spelling, and that its app is installed."""

    entry = "unknown-work-type"


class InvalidWorkId(AyeworkError, ValueError):
    """A work id must be new and have 1 to 64 printable characters without spaces."""

    entry = "id-not-usable"


class NotEnqueued(AyeworkError):
    """Works with ``on_commit=True`` could not be inserted after the commit; enqueue them again.

    It is not raised, but reported to ``ON_ERROR``. ``works`` has the id and the type of each.
    """

    entry = "not-enqueued"

    def __init__(self, message: str | None = None, *, works: Iterable[tuple[str, str]] = ()) -> None:
        self.works = tuple(works)
        super().__init__(message, id=self.works[0][0] if self.works else None)


class InvalidOption(AyeworkError, ValueError):
    """A queueing option has a value that cannot be used."""

    entry = "option-not-usable"


class CronError(AyeworkError, ValueError):
    """A cron expression, or its time zone, cannot be used; the message says where and why."""

    entry = "cron-not-usable"


class NotEncodable(AyeworkError, TypeError):
    """A value cannot be stored; pass plain data, such as a primary key instead of a model instance."""

    entry = "not-encodable"

    def __init__(self, message: str | None = None, *, path: str = "", id: str | None = None) -> None:
        super().__init__(message, id=id)
        self.path = path


class NotDecodable(AyeworkError, ValueError):
    """A stored value cannot be read back."""

    entry = "not-decodable"


class PayloadTooLarge(AyeworkError, ValueError):
    """A value is larger than ``AYEWORK["MAX_PAYLOAD"]``; store it elsewhere and pass a reference."""

    entry = "payload-too-large"


class WorkNotFound(AyeworkError, LookupError):
    """No work has this id; its transaction is not committed or was rolled back, or it was pruned."""

    entry = "work-not-found"


class WorkerNotFound(AyeworkError, LookupError):
    """No running worker has this id; it may have stopped."""

    entry = "worker-not-found"


class ChainNotFound(AyeworkError, LookupError):
    """No chain has this id, so no work can be blocked by it."""

    entry = "chain-not-found"


class AlreadyCompleted(AyeworkError):
    """The work has ended already."""

    entry = "already-completed"


class NotTriggerable(AyeworkError):
    """Only a scheduled work can be triggered."""

    entry = "not-triggerable"


class NotWaiting(AyeworkError):
    """Only a work that waits can be given another priority or queue: a blocked, scheduled or pending one."""

    entry = "not-waiting"


class NotRetryable(AyeworkError):
    """Only a dead or cancelled work can be retried."""

    entry = "not-retryable"

    def __init__(
        self,
        message: str | None = None,
        *,
        id: str | None = None,
        code: str = "",
        members: Iterable[str] = (),
    ) -> None:
        super().__init__(message, id=id, code=code)
        self.members = tuple(members)


class BlockerReference(AyeworkError):
    """A chain blocks, or had blocked, a work outside of those to delete, so nothing was deleted."""

    entry = "blocker-reference"

    def __init__(
        self, message: str | None = None, *, id: str | None = None, references: Iterable[tuple[str, str]] = ()
    ) -> None:
        self.references = tuple(references)
        super().__init__(message, id=id or next((chain for chain, _ in self.references), None))


class WorkFailed(AyeworkError):
    """The work died."""

    entry = "work-failed"


class WorkCancelled(AyeworkError):
    """The work was cancelled."""

    entry = "work-cancelled"


class WaitTimeout(AyeworkError, TimeoutError):
    """The work did not end within the time given."""

    entry = "wait-timeout"


class WaitInTransaction(AyeworkError):
    """The work was enqueued in this transaction, so no worker can see it until the transaction commits;
    wait after the ``atomic`` block (in a test, call ``drain()`` first)."""

    entry = "wait-in-transaction"


class InvalidInstruction(AyeworkError, TypeError):
    """A handler returned something the engine cannot carry out."""


class AttemptTimeout(AyeworkError, TimeoutError):
    """The attempt ran longer than the work's ``timeout``."""

    entry = "attempt-timeout"


class Aborted(AyeworkError):
    """The attempt was asked to stop; ``reason`` says why."""

    entry = "aborted"

    def __init__(self, reason: str, message: str | None = None, *, id: str | None = None) -> None:
        super().__init__(message or f"The attempt was asked to stop: {reason}.", id=id)
        self.reason = reason


def by_name(init: Callable[P, None]) -> Callable[P, None]:
    """Let the constructor of an exception say which arguments it has when it is given others."""
    known = list(init.__kwdefaults__ or ())

    @functools.wraps(init)
    def call(*given: P.args, **named: P.kwargs) -> None:
        others = [
            *map(repr, given[1:]),
            *(f"{name}={value!r}" for name, value in named.items() if name not in known),
        ]
        if others:
            raise type_error(
                "one-moment-expected",
                f"expected {type(given[0]).__name__} with arguments of these names: {', '.join(known)}; "
                f"got: {', '.join(others)}.",
            )
        init(*given, **named)

    return call


class Defer(AyeworkError):
    """Raised by a handler: come back later, without using an attempt.

    Exactly one of ``delay`` (seconds or timedelta) and ``run_at`` (aware datetime) is given; a moment in
    the past means now.

    >>> Defer(delay=30).delay
    30
    """

    @by_name
    def __init__(self, *, delay: float | timedelta | None = None, run_at: datetime | None = None) -> None:
        require_one_moment(type(self).__name__, delay, run_at)
        super().__init__("Deferred by its handler.")
        self.delay = delay
        self.run_at = run_at


class Reschedule(AyeworkError):
    """Raised by a handler: retry at an exact time; the attempt counts.

    Exactly one of ``delay`` (seconds or timedelta) and ``run_at`` (aware datetime) is given. ``cause`` is
    recorded as the attempt's error.
    """

    @by_name
    def __init__(
        self,
        *,
        delay: float | timedelta | None = None,
        run_at: datetime | None = None,
        cause: BaseException | str | None = None,
    ) -> None:
        require_one_moment(type(self).__name__, delay, run_at)
        super().__init__("Rescheduled by its handler.")
        self.delay = delay
        self.run_at = run_at
        self.cause = cause


class Abort(AyeworkError):
    """Raised by a handler: give up now, whatever attempts are left.

    ``cause`` (an exception or a text) is recorded as the work's error.
    """

    def __init__(self, cause: BaseException | str | None = None) -> None:
        super().__init__(cause if isinstance(cause, str) and cause else "Aborted by its handler.")
        self.cause = cause or None


class NeverEnqueued(ResourceWarning):
    """A work was built and dropped, so nothing is queued; enqueue it. It is shown in DEBUG and in tests."""


def require_one_moment(name: str, delay: object, run_at: object) -> None:
    """Raise TypeError unless exactly one of ``delay`` and ``run_at`` is given."""
    if (delay is None) == (run_at is None):
        raise type_error(
            "one-moment-expected",
            f"{name} expects exactly one of delay= (seconds or timedelta) and run_at= (datetime).",
        )


#: Names of other packages that are no longer than this count only if they are spelled exactly.
SHORT = 3


def by_other_name(other_names: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return what to write here, by the name it has in other packages.

    >>> by_other_name({"run_at": ["eta", "run_after"]})
    {'eta': 'run_at', 'run_after': 'run_at'}
    """
    return {name: meant for meant, names in other_names.items() for name in names}


def did_you_mean(name: str, known: Iterable[str], meanings: Mapping[str, str] | None = None) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest known name, or an empty text.

    ``meanings`` gives for names of other packages what to write here: a name, or an expression.

    >>> did_you_mean("QUEUE", ["QUEUES", "LEASE"])
    " Did you mean 'QUEUES'?"
    >>> did_you_mean("receipt", ["shop.receipt"])
    " Did you mean 'shop.receipt'?"
    >>> did_you_mean("zzz", ["QUEUES"]), did_you_mean("letters.cleanup", ["letters.pay"])
    ('', '')
    >>> did_you_mean("retires", ["expires"], {"retries": "retry=Retry(attempts=…)"})
    ' Did you mean retry=Retry(attempts=…)?'
    """
    known, meanings = list(known), meanings or {}
    others = [other for other in meanings if len(other) > SHORT or other == name]
    prefix = name[: name.rfind(".") + 1]  # that names share an app does not make them alike
    nearest = [each for each in known if each.endswith(f".{name}")] or [
        near
        for near in difflib.get_close_matches(name, [*known, *others], n=3, cutoff=0.6)
        if not near.startswith(prefix)
        or difflib.get_close_matches(name.removeprefix(prefix), [near.removeprefix(prefix)], cutoff=0.6)
    ]
    if not nearest:
        return ""
    meant = meanings.get(nearest[0], nearest[0])
    return f" Did you mean {repr(meant) if meant.isidentifier() or nearest[0] == meant else meant}?"


def no_attribute(owner: str, name: str, known: Iterable[str], meanings: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing attribute, with the nearest one; none is suggested for private names."""
    hint = "" if name.startswith("_") else did_you_mean(name, known, meanings)
    return AttributeError(f"{owner} object has no attribute {name!r}{'.' if hint else ''}{hint}")


def ends_process(error: BaseException) -> bool:
    """Tell whether an error ends the process: in the main thread handlers of signals raise such errors."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and isinstance(error, (KeyboardInterrupt, SystemExit))
