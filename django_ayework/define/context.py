"""The context of a handler, and the signal that asks the handler to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, Unpack

from django_ayework.define.handles import C, T, in_thread
from django_ayework.define.instructions import Continue, Instruction, Queue, Result, Void
from django_ayework.define.options import QueueOptions, checked, combined, refuse_of_enqueue
from django_ayework.define.requests import Queueable, WorkRequest, require_step
from django_ayework.documentation import logged, type_error
from django_ayework.errors import Aborted, AttemptTimeout, InvalidInstruction, by_other_name, no_attribute
from django_ayework.rules.identity import Output
from django_ayework.rules.states import Status

logger = logging.getLogger("django_ayework")

H = TypeVar("H")
N = TypeVar("N", bound=Instruction[Any, Any])

NO_EXTRA: Final[Mapping[str, Any]] = MappingProxyType({})
#: The handler gave no output; None would be one, though a bad one.
NOTHING: Final = object()
#: The attributes that contexts have in other packages, by what to write here.
MEANINGS = by_other_name(
    {
        "raise Reschedule(delay=…)": ("retry",),
        "ctx.id": ("job", "job_id", "request", "task_id"),
        "ctx.progress(done, total)": ("meta", "save_meta", "update_progress", "update_state"),
        "ctx.continue_with(work)": ("replace",),
    }
)


class AbortReason(StrEnum):
    """Why an attempt should stop."""

    TIMEOUT = "timeout"  # it ran longer than its type's ``timeout``
    CANCELLED = "cancelled"  # the work was cancelled
    TAKEN_BY_ANOTHER_WORKER = "taken_by_another_worker"  # its lease lapsed and another worker has it
    ALREADY_COMPLETED = "already_completed"  # it was completed without this worker
    NOT_FOUND = "not_found"  # its row is gone
    SHUTDOWN = "shutdown"  # the worker stops and the grace is over
    ERROR = "error"  # its lease could not be renewed in time, or its outcome could not be written


class AbortSignal:
    """Asks a handler to stop. Threads may share it. It fires once, and keeps the first reason."""

    __slots__ = ("_event", "_lock", "_reason", "heeded_at")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: AbortReason | None = None
        self._event: threading.Event | None = None  # made by the first wait(): few handlers wait
        #: When the signal was last raised in the handler's own thread, in monotonic seconds.
        self.heeded_at = float("-inf")

    @property
    def aborted(self) -> bool:
        """Whether the attempt is to stop."""
        return self._reason is not None

    @property
    def reason(self) -> AbortReason | None:
        """The reason why the attempt is to stop, or None."""
        return self._reason

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the signal fires, at most so many seconds; return whether it fired."""
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
            if self._reason is not None:
                return True
        return self._event.wait(seconds)

    def raise_if_aborted(self) -> None:
        """Raise ``AttemptTimeout`` for a timeout and ``Aborted`` for any other reason."""
        if not self.aborted:
            return
        self.heed()
        if self._reason is AbortReason.TIMEOUT:
            raise AttemptTimeout
        raise Aborted(str(self._reason))

    def heed(self) -> None:
        """Note that the handler is getting the exception, so that it is not interrupted again at once."""
        self.heeded_at = time.monotonic()

    def abort(self, reason: AbortReason) -> None:
        """Fire the signal, unless it fired before (the engine calls this)."""
        with self._lock:
            if self._reason is None:
                self._reason = reason
                if self._event is not None:
                    self._event.set()


class ContextServices(Protocol):
    """The calls of a context to the engine that made it."""

    def claim(self, key: str) -> bool:
        """Take a key once across the fleet."""
        ...

    def states(self, ids: Iterable[str]) -> list[Status | None]:
        """Look up statuses."""
        ...

    def progress(self, id: str, progress: Mapping[str, Any]) -> None:
        """Record how far a work is."""


class ContextTransactions(Protocol):
    """The transactions of one attempt."""

    def prepare(self) -> AbstractContextManager[None]:
        """Open a transaction that commits at the end of the block."""
        ...

    async def aprepare(self, act: Callable[[], T]) -> T:
        """Run ``act`` in a transaction."""
        ...

    def complete(self, context: Context) -> AbstractContextManager[None]:
        """Open the transaction in which the work ends."""
        ...

    async def acomplete(self, context: Context, act: Callable[[], T]) -> T:
        """Run ``act`` and end the work in one transaction."""
        ...


class Assignment(NamedTuple):
    """The facts of one attempt; a function gives a value that is read from the database on first use."""

    id: str
    type: str
    group_id: str
    chain_id: str
    attempt: int
    parent: str | None = None
    dependents: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    blockers: tuple[Any, ...] | Callable[[], tuple[Any, ...]] = ()
    last_error: str | None = None
    deadline: datetime | None = None
    unit: str | None = None


class Context:
    """The context of an attempt. A handler whose first parameter is ``ctx``, or a ``Context``, gets it.

    The methods ``result``, ``queue``, ``continue_with`` and ``void`` build instructions. The engine carries
    out the one that the handler returns.
    """

    __slots__ = (
        "__weakref__", "_blockers", "_dependents", "_given_transactions", "_services", "attempt", "built",
        "chain_id", "deadline", "extra", "given_output", "group_id", "id", "last_error", "parent", "signal",
        "type", "unit",
    )  # fmt: skip

    def __init__(
        self,
        assignment: Assignment,
        services: ContextServices,
        signal: AbortSignal | None = None,
        transactions: ContextTransactions | None = None,
    ) -> None:
        self._dependents = assignment.dependents
        self._blockers = assignment.blockers
        self._services = services
        self._given_transactions = transactions
        #: The id of this work, and the name of its type.
        self.id = assignment.id
        self.type = assignment.type
        #: The id of the group this work belongs to.
        self.group_id = assignment.group_id
        #: The id of the first work of this work's chain.
        self.chain_id = assignment.chain_id
        #: The number of this attempt, 1 for the first.
        self.attempt = assignment.attempt
        #: The id of the work (or gate) that queued this one, or None.
        self.parent = assignment.parent
        #: The error of the attempt before, or None.
        self.last_error = assignment.last_error
        #: When this work expires, or None.
        self.deadline = assignment.deadline
        #: The unit of this work within its type, or None; see output().
        self.unit = assignment.unit
        self.signal = signal or AbortSignal()
        #: Values that middlewares passed on, by name; the inner ones win.
        self.extra: Mapping[str, Any] = NO_EXTRA
        #: Every instruction built here, to find those that are not returned.
        self.built: list[Instruction[Any, Any]] = []
        #: The last argument of output().
        self.given_output: Any = NOTHING

    @property
    def dependents(self) -> tuple[str, ...]:
        """The ids that the gate which released this work had waited for, in order."""
        if callable(self._dependents):
            self._dependents = self._dependents()
        return self._dependents

    @property
    def blockers(self) -> tuple[Any, ...]:
        """The results of the chains that had blocked this work, in the order they were given."""
        if callable(self._blockers):
            self._blockers = self._blockers()
        return self._blockers

    def result(self, value: T, final: bool = False, append: Callable[[Any], Any] | None = None) -> Result[T]:
        """Return the instruction to end with ``value`` as the work's result and contribution to the group.

        ``append(existing)`` is given the group's value so far (None at first) and returns the new one, under
        the lock of the group. After a contribution with ``final=True`` the group's value no longer changes.
        """
        return self._build(Result(self, value, final, append))

    def queue(
        self,
        works: Queueable[Any, H] | Iterable[Queueable[Any, H] | Iterable[Queueable[Any, H]]],
        **options: Unpack[QueueOptions],
    ) -> Queue[H]:
        """Return the instruction to queue works, and nested instructions, into this work's group.

        The options apply to these works. The work itself ends without a result.

        Example::

            return ctx.queue([fetch(shop=1), fetch(shop=2)]).next([send_report()])
        """
        return self._build(Queue(self, works, checked(options)))

    def continue_with(self, work: WorkRequest[Any, H, C], **options: Unpack[QueueOptions]) -> Continue[H, C]:
        """Return the instruction to end without a result, and to continue the chain with ``work``.

        A work has one continuation. Raises InvalidInstruction for a second one, and for a chain that would
        block itself. Raises TypeError for anything that cannot be a step, such as a gate.
        """
        if any(isinstance(node, Continue) for node in self.built):
            raise invalid(self, "called ctx.continue_with(…) twice; a work has one.", code="continued-twice")
        given = checked(options)
        refuse_of_enqueue(given, "ctx.continue_with(...)")
        step = Continue(self, require_step(work), given)
        if self.chain_id in combined(step.options, step.work.options).get("blockers", ()):
            raise invalid(
                self,
                "called ctx.continue_with(…) with its own chain as a blocker; a chain that waits for its own "
                "end never ends.",
                code="chain-blocks-itself",
            )
        return self._build(step)

    def void(self) -> Void:
        """Return the instruction to end without a result and without a contribution to the group."""
        return self._build(Void(self))

    if not TYPE_CHECKING:  # type checkers refuse unknown attributes themselves

        def __getattr__(self, name):
            """Raise AttributeError, suggesting the nearest attribute."""
            public = [known for known in dir(Context) if not known.startswith("_")]
            raise no_attribute("'Context'", name, public, MEANINGS)

    def output(self, units: Output) -> None:
        """Give the units that the type named with ``then=`` works on, once this work has succeeded.

        A mapping of unit to input, or a list of units and of ``[unit, input, metadata, priority]``, where the
        metadata may have ``priority`` and ``delay`` (seconds, from the end of this work). Of several calls
        the last counts. A mapping that the handler returns replaces them. Elements that cannot be read are
        dropped and logged; this work succeeds nevertheless.

        Example::

            @work(then="site.fetch")
            def crawl(ctx: Context, url: str) -> None:
                ctx.output({link: {"url": link} for link in links_of(url)})
        """
        self.given_output = units

    def prepare(self) -> AbstractContextManager[None]:
        """Open a short transaction at the start of a handler; it commits at the end of the block.

        Its writes stay when the attempt fails later; the next attempt prepares again.
        """
        return self._transactions.prepare()

    def aprepare(self, act: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Await it: run the plain function ``act`` in a transaction of its own; see prepare()."""
        return self._transactions.aprepare(act)

    def complete(self) -> AbstractContextManager[None]:
        """Open the transaction in which this work ends, and check that this worker still has the work.

        The writes of the block commit together with the work's end once the handler has returned, so return
        from within it. The outcome is the one instruction built inside, else what the handler returns.

        Raises Aborted when another worker has the work by now; nothing is written then.

        Example::

            with ctx.complete():
                Invoice.objects.create(number=number)
                return ctx.result(number)
        """
        return self._transactions.complete(self)

    def acomplete(self, act: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Await it: run the plain function ``act``, and end this work, in one transaction.

        Returns what ``act`` returned. That is the outcome, or if it is None the one instruction that ``act``
        built. See complete().
        """
        return self._transactions.acomplete(self, act)

    def claim(self, key: str) -> bool:
        """Take a key: return True for the first caller in 24 hours across all workers, else False."""
        return self._services.claim(key)

    async def aclaim(self, key: str) -> bool:
        """See claim()."""
        return await in_thread(self._services.claim, key)

    def states(self, ids: Iterable[str]) -> list[Status | None]:
        """Return the status of each work, in order; None for an unknown one."""
        return self._services.states(ids)

    async def astates(self, ids: Iterable[str]) -> list[Status | None]:
        """See states()."""
        return await in_thread(self._services.states, ids)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Record how far this work is. Calls are cheap: the last one is written from time to time.

        Raises TypeError unless ``done`` and ``total`` are numbers.
        """
        for name, value in (("done", done), ("total", total or 0)):
            if not hasattr(value, "__float__"):
                raise type_error(
                    "progress-not-usable",
                    f"expected ctx.progress(done, total) with {name} as a number, got: {value!r}.",
                )
        self._services.progress(self.id, {"done": done, "total": total, "note": note})

    @property
    def _transactions(self) -> ContextTransactions:
        if self._given_transactions is None:
            raise InvalidInstruction(
                "prepare and complete are for running handlers.", id=self.id, code="prepare-complete-refused"
            )
        return self._given_transactions

    def _build(self, node: N) -> N:
        self.built.append(node)
        return node


def invalid(context: Context, problem: str, *, code: str) -> InvalidInstruction:
    """Return the error of a handler, given the wrong act in words."""
    return InvalidInstruction(f"the handler of {context.type!r} {problem}", id=context.id, code=code)


#: The context's own attributes; no extra has one of these names.
RESERVED = frozenset(name for name in dir(Context) if not name.startswith("_"))


def enrich(context: Context, extra: Mapping[str, Any]) -> None:
    """Add the values that a middleware passes on to ``ctx.extra``; they win over those of outer middlewares.

    Names of the context's own attributes are left out, with a warning in the log.
    """
    if taken := sorted(RESERVED.intersection(extra)):
        logger.warning(
            "A middleware around %s passed on %s, which are attributes of the context; choose other "
            "names. %s",
            context.type,
            ", ".join(map(repr, taken)),
            logged("names-of-the-context"),
        )
    added = {name: value for name, value in extra.items() if name not in RESERVED}
    context.extra = MappingProxyType({**context.extra, **added})
