"""Context that follows a work from where it is queued to where it runs: trace ids, request ids, a tenant.

A propagator says what to store with new works, and surrounds their attempts. Register it when Django starts,
as receivers of signals are::

    # shop/apps.py, in ready()
    from django_ayework import propagation

    propagation.register(RequestId())
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from django_ayework.documentation import type_error
from django_ayework.rules.states import Outcome


class Queueing(NamedTuple):
    """Works that are queued together, which get the same headers.

    ``type`` and ``queue`` are None where they differ, ``id`` is None unless ``number`` is 1. ``parent`` is
    the id of the work whose outcome queues them; ``continues`` tells whether they continue its chain.
    """

    number: int
    id: str | None
    type: str | None
    queue: str | None
    parent: str | None
    continues: bool


class AttemptedWork(NamedTuple):
    """A work whose attempt runs. ``attempt`` counts from 1, ``attempts`` is how many its policy allows."""

    id: str
    type: str
    queue: str
    group: str
    attempt: int
    attempts: int
    worker: str | None
    headers: Mapping[str, str]


class AttemptFailure(NamedTuple):
    """An attempt that did not succeed.

    ``outcome`` is failed (another attempt follows), died or deferred; None if the worker stops and gives the
    work back, or in ``perform()``. ``reason`` says why a dead work is dead, else it is empty.
    """

    work: AttemptedWork
    error: BaseException
    outcome: Outcome | None
    reason: str


class RunningAttempt(ABC):
    """The attempt of a work, or the attempts of a batch's works, which run together."""

    __slots__ = ("failures", "headers", "is_batch", "type")

    #: The name of the type.
    type: str
    is_batch: bool
    #: The headers of the work; of a batch those of its first one.
    headers: Mapping[str, str]
    #: How attempts ended that did not succeed, once the handler has returned.
    failures: Sequence[AttemptFailure]

    @property
    @abstractmethod
    def works(self) -> Sequence[AttemptedWork]:
        """One work, or those of a batch."""

    @abstractmethod
    def shown_input(self) -> Any:
        """Return the input by name, without what the type redacts; None for a batch."""

    @abstractmethod
    def waited_for(self, limit: int) -> Sequence[Mapping[str, str]]:
        """Return the headers of works that the work had waited for: those of its gate, and its blockers.

        This queries the database if the work has waited; call it in ``attach()``, not within its block.
        """


class Propagator:
    """Stores headers with new works, and surrounds their attempts; a subclass has one method or both.

    An exception of a propagator is reported to ``ON_ERROR``, and has no other effect, unless it ends the
    process: KeyboardInterrupt and SystemExit in the main thread.
    """

    def inject(self, queueing: Queueing) -> Mapping[str, str]:
        """Return the headers to store with works that are about to be queued; names and values are texts."""
        return {}

    def attach(self, attempt: RunningAttempt) -> AbstractContextManager[Any] | None:
        """Return a context manager that surrounds the handler and the making of its outcome, or None.

        It is entered where the handler runs, so context variables that it sets are the handler's. When it
        ends, ``attempt.failures`` says how the attempt ended.
        """
        return None


#: In the order in which their blocks are entered.
propagators: list[Propagator] = []


def register(propagator: Propagator) -> None:
    """Add a propagator to this process; one that was registered before stays where it is.

    Raises TypeError for anything but a Propagator.
    """
    if not isinstance(propagator, Propagator):
        raise type_error(
            "propagator-not-usable",
            f"expected a propagator, got: {propagator!r}; make an instance of a subclass of "
            "django_ayework.propagation.Propagator.",
        )
    if propagator not in propagators:
        propagators.append(propagator)


def unregister(propagator: Propagator) -> None:
    """Remove a propagator; one that is not registered is ignored."""
    if propagator in propagators:
        propagators.remove(propagator)
