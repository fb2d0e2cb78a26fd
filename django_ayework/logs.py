"""What log records say of the work whose handler wrote them.

Attach the filter to the handlers of your logging, as filters of a logger see its own records only::

    LOGGING = {
        "filters": {"work": {"()": "django_ayework.logs.WorkContextFilter"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "filters": ["work"]}},
        ...
    }
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple

from django_ayework.define.requests import watch


class AttemptFacts(NamedTuple):
    """What every record of an attempt says; ``context`` comes from the hooks and from ``bound``."""

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

    Outside of an attempt they are None, and ``work_context`` is empty, so that a format may name them. What
    is in the context is an attribute of its own besides, unless the record has one of that name.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes; every record passes."""
        facts = _current.get()
        record.work_id = facts.id if facts else None
        record.work_type = facts.type if facts else None
        record.work_attempt = facts.attempt if facts else None
        record.work_group = facts.group if facts else None
        record.work_context = context = dict(facts.context) if facts else {}
        for name, value in context.items():
            if name not in LATER and not hasattr(record, name):
                setattr(record, name, value)
        return True


class attempt_logged:  # noqa: N801  # reads as what it is, a context manager
    """Let the records written in the block tell of this attempt (the engine calls this)."""

    __slots__ = ("_facts", "_token")

    def __init__(self, facts: AttemptFacts) -> None:
        self._facts = facts

    def __enter__(self) -> None:
        self._token = _current.set(self._facts)

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)
        if watch.dropped:
            watch.dropped.pop(self._facts.id, None)


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
