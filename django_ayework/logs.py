"""Log records that name the work whose handler wrote them.

Attach the filter to the handlers of your logging, as filters of a logger see its own records only::

    LOGGING = {
        "filters": {"work": {"()": "django_ayework.logs.WorkContextFilter"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "filters": ["work"]}},
        ...
    }
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

from django_ayework.define.requests import watch
from django_ayework.errors import ends_process
from django_ayework.rules.formatting import traceback_of


class AttemptFacts(NamedTuple):
    """The fields of every record of an attempt; ``context`` comes from the hooks and from ``bound``."""

    id: str
    type: str
    attempt: int
    group: str
    context: Mapping[str, Any] = MappingProxyType({})


#: The attempt that runs here. It goes along to the threads of ``sync_to_async``, and to tasks.
_current: ContextVar[AttemptFacts | None] = ContextVar("django_ayework_attempt", default=None)


#: Names that a record gets later, and that nothing may take.
LATER = frozenset({"message", "asctime"})


class WorkContextFilter(logging.Filter):
    """Adds ``work_id``, ``work_type``, ``work_attempt``, ``work_group`` and ``work_context`` to each record.

    Outside of an attempt they are None, and ``work_context`` is empty, so a format may name them. The
    engine's own records about a work have its attributes already, and keep them. Each value of the context is
    also an attribute of the record, unless the record has one of that name.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes; every record passes."""
        facts = _current.get()
        if not hasattr(record, "work_id"):
            vars(record).update(fields_of(facts))
        record.work_context = context = dict(facts.context) if facts else {}
        for name, value in context.items():
            if name not in LATER and not hasattr(record, name):
                setattr(record, name, value)
        return True


def fields_of(facts: AttemptFacts | None) -> dict[str, str | int | None]:
    """Return the attributes of a record about this attempt; None for each if there is no attempt."""
    id, type, attempt, group, _ = facts or (None, None, None, None, None)
    return {"work_id": id, "work_type": type, "work_attempt": attempt, "work_group": group}


class AttemptLogged:
    """The block in which log records name an attempt; a class, as a generator would cost more per attempt."""

    __slots__ = ("_facts", "_token")

    def __init__(self, facts: AttemptFacts) -> None:
        self._facts = facts

    def __enter__(self) -> None:
        self._token: Token[AttemptFacts | None] = _current.set(self._facts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._token)
        if watch.dropped:
            watch.dropped.pop(self._facts.id, None)


def current_fields() -> dict[str, Any]:
    """Return the fields that records written here have of the attempt; an empty dictionary outside of one.

    It is for libraries without filters, such as structlog.
    """
    facts = _current.get()
    return {**facts.context, **fields_of(facts)} if facts else {}


def current_work() -> str | None:
    """Return the id of the work whose attempt runs here, or None."""
    facts = _current.get()
    return facts.id if facts else None


watch.attempt = current_work


@contextmanager
def bound(**context: Any) -> Generator[None]:
    """Add to the context of the records written in the block; without an attempt it does nothing.

    Example::

        with bound(order=order.pk):
            logger.info("charged")
    """
    facts = _current.get()
    if facts is None:
        yield
        return
    token = _current.set(facts._replace(context={**facts.context, **context}))
    try:
        yield
    finally:
        _current.reset(token)


# The engine's own records


@contextmanager
def printed_errors() -> Generator[None]:
    """Print what a handler of the log or a driver raises in the block; go on unless that ends the process."""
    try:
        yield
    except BaseException as error:
        with suppress(BaseException):  # an error that cannot be printed, or nothing to print to
            print(traceback_of(error), file=sys.stderr)
        if ends_process(error):
            raise


class EngineLogger(logging.LoggerAdapter[logging.Logger]):
    """Writes the engine's records. An error of a handler of the log is printed, and fails no work."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write a record, which names the caller of the method that called this one."""
        with printed_errors():
            self.logger.log(level, msg, *args, stacklevel=2, **kwargs)


logger = EngineLogger(logging.getLogger("django_ayework"))
