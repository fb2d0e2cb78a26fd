"""A request: a call of a work that is built but not queued yet. Gates are requests, too.

A request that is built and dropped would silently do nothing. In DEBUG, in tests and in workers, requests are
watched: one that the next instruction discards is reported when Python frees it there, as a warning or as an
error of the attempt that runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import isfunction
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias

from django_ayework.compat import (
    Discard,
    after_fork_in_child,
    calling_frame,
    discard_after_call,
    is_discarding,
)
from django_ayework.define.handles import C_co, G_co, Handle, R_co
from django_ayework.define.options import QueueOptions, refuse_identity
from django_ayework.documentation import type_error, value_error
from django_ayework.errors import NeverEnqueued, by_other_name, no_attribute
from django_ayework.rules.conditions import Condition, require_condition
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.identity import require_work_id, uuid7

#: The reserved type of a gate.
GATE_TYPE = "@work/dependency"

_lock = threading.Lock()
_last_tick = 0


class Providers:
    """The functions of the layers above, provided by ``apps`` at start-up."""

    app_label_of: Callable[[str], str | None] = staticmethod(lambda module: None)
    #: Returns the function of ``AYEWORK["ID"]``, or None.
    id_maker: Callable[[], Callable[[], str] | None] = staticmethod(lambda: None)
    enqueue: Callable[[WorkRequest[Any, Any]], Any]
    aenqueue: Callable[[WorkRequest[Any, Any]], Coroutine[Any, Any, Any]]


providers = Providers()


def new_id() -> str:
    """Return a new id of a work. Raises InvalidWorkId when a custom one cannot be used."""
    make = providers.id_maker()
    return new_uuid7() if make is None else require_work_id(make())


def new_uuid7() -> str:
    """Return a new UUID version 7; each is greater than the one before it in this process."""
    return uuid7(next_tick(), int.from_bytes(os.urandom(8)) >> 2)


def next_tick() -> int:
    """Return the time in 4096ths of a millisecond, strictly growing even when the clock goes back."""
    global _last_tick
    tick = time.time_ns() * 4096 // 1_000_000
    with _lock:
        _last_tick = tick = max(tick, _last_tick + 1)
    return tick


def renew_lock() -> None:
    """Replace the lock in a forked process, as a thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


after_fork_in_child(renew_lock)


class Queueable(Generic[R_co, G_co, C_co]):
    """The arguments of ``ctx.queue``: requests and instructions."""

    if not TYPE_CHECKING:  # type checkers refuse unknown attributes themselves

        def __getattr__(self, name):
            """Raise AttributeError, saying what to write instead."""
            if name == "next":
                raise AttributeError(
                    f"{self!r} has no .next, which is of ctx.queue(…) only: write "
                    "return ctx.queue([…]).next([…])."
                )
            raise no_attribute(repr(type(self).__name__), name, (), self._meanings)

    _meanings: ClassVar[Mapping[str, str]] = {}


@dataclass(frozen=True, eq=False)
class WorkRequest(Queueable[R_co, G_co, C_co]):
    """A call of a work: nothing is queued yet, but ``id`` exists, so a gate can watch it.

    Typed by the work's own result, its contribution to its group, and the result of its chain.
    """

    type: str
    input: Mapping[str, Any]
    id: str = field(default_factory=new_id)
    options: QueueOptions = field(default_factory=QueueOptions)

    #: Requests have no methods: functions take them.
    _meanings = by_other_name(
        {
            "enqueue(work)": ("enqueue", "delay", "send"),
            "await aenqueue(work)": ("aenqueue",),
            "enqueue(work, delay=…)": ("apply_async",),
            "enqueue(work).result()": ("result",),
            "enqueue(work).state()": ("state",),
            "ctx.queue([work]).next([…])": ("then",),
        }
    )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type} {self.id}>"


@dataclass(frozen=True, eq=False, repr=False)
class GateRequest(WorkRequest[None, G_co, None]):
    """A gate: it watches works and queues others into its group once its condition holds."""

    watched: tuple[str, ...] = ()
    releases: tuple[WorkRequest[Any, G_co], ...] = ()
    condition: Condition = "all-success"
    timeout: float | None = None
    on_unmet: Literal["dead", "wait"] = "dead"


Watchable: TypeAlias = WorkRequest[Any, Any] | Handle[Any, Any] | str


def dependency(
    on: Iterable[Watchable],
    queue: Iterable[WorkRequest[Any, G_co]],
    condition: Condition = "all-success",
    timeout: Seconds | None = None,
    on_unmet: Literal["dead", "wait"] = "dead",
) -> GateRequest[G_co]:
    """Build a gate: once the works ``on`` meet the condition, it queues the works of ``queue``.

    ``on`` takes requests, handles or ids; their works need not exist yet. A gate that has not opened within
    ``timeout`` (seconds or timedelta, from its queueing) dies as ``expired``. A gate that can never open dies
    as ``unsatisfiable``, or with ``on_unmet="wait"`` waits until the works are retried.

    Raises ValueError for a condition that the watched works cannot meet, and TypeError for works with
    ``dedup`` or ``unit``.

    Example::

        first, second = fetch(shop=1), fetch(shop=2)
        enqueue_many([first, second, dependency(on=[first, second], queue=[send_report()])])
    """
    on = listed(on)
    require_own_identity(on, "dependency(on=)")
    watched = tuple(watched_ids(on))
    require_condition(condition, len(watched))
    if on_unmet not in ("dead", "wait"):
        raise value_error(
            "condition-not-usable", f"expected on_unmet to be 'dead' or 'wait', got: {on_unmet!r}."
        )
    gate: GateRequest[G_co] = GateRequest(
        type=GATE_TYPE,
        input={},
        watched=watched,
        releases=tuple(require_new(queue, "dependency(queue=)")),
        condition=condition,
        timeout=None if timeout is None else seconds(timeout, "timeout"),
        on_unmet=on_unmet,
    )
    if watch.on:
        watch.note(gate, calling_frame(1))
    return gate


def watched_ids(on: Iterable[Any]) -> Iterable[str]:
    """Return each id once, in the order given. Those of requests are known to be ids."""
    return dict.fromkeys(
        item.id if isinstance(item, WorkRequest) else require_work_id(getattr(item, "id", item))
        for item in listed(on)
    )


def listed(items: Any) -> Iterable[Any]:
    """Return the items; a single one will do."""
    return (items,) if isinstance(items, str) or not isinstance(items, Iterable) else list(items)


def require_step(work: WorkRequest[R_co, G_co, C_co]) -> WorkRequest[R_co, G_co, C_co]:
    """Return the work if it can continue a chain; a gate cannot, for it has no handler and no result."""
    require_no_gate(work, "ctx.continue_with(work)")
    if "unit" in work.options:
        refuse_identity({"unit": work.options}, f"ctx.continue_with(...), given {work!r},")
    return work


def require_no_gate(item: Any, where: str) -> None:
    """Raise TypeError unless this is a request of a work that has a handler."""
    [request] = require_requests([item], where)
    if isinstance(request, GateRequest):
        raise type_error("not-a-built-work", f"expected {where} to have a work with a handler, got a gate.")


def require_requests(items: Any, where: str) -> Iterable[WorkRequest[Any, Any]]:
    """Return the requests, else raise TypeError saying how to build one."""
    for item in listed(items):
        if not isinstance(item, WorkRequest):
            raise type_error(
                "not-a-built-work",
                f"expected {where} to have works built by calling their type, such as add(a=1, b=2), "
                f"got: {item!r}.{how_to_build(item)}",
            )
        yield item


def how_to_build(item: object) -> str:
    """Return what to write instead of a list, or of a type or a function that was not called.

    >>> how_to_build(5)
    ''
    """
    if isinstance(item, (list, tuple)) and item and all(isinstance(each, WorkRequest) for each in item):
        return " Did you mean enqueue_many([…])?"
    name = getattr(item, "__name__", None)
    if hasattr(item, "handler") and callable(item):
        return f" Call the type: {name}(…)."
    if isfunction(item):
        return f" Is it a work? Write @work above {name}, and call it: {name}(…)."
    if hasattr(item, "using") and hasattr(item, "enqueue"):
        return " A task of Django is queued by its own enqueue(…)."
    return ""


def require_new(items: Any, where: str) -> Iterable[WorkRequest[Any, Any]]:
    """Return the requests, else raise TypeError; none may turn out to be a work that is there already."""
    requests = list(require_requests(items, where))
    require_own_identity(requests, where)
    return requests


def require_own_identity(items: Iterable[Any], where: str) -> None:
    """Raise TypeError for a request whose type computed ``dedup`` or ``unit``."""
    for item in items:
        if isinstance(item, WorkRequest) and item.options:
            refuse_identity(item.options, f"{where}, given {item!r},")


class RequestWatch:
    """Reports requests that are built and dropped, once it is started."""

    def __init__(self) -> None:
        self.on = False
        #: Returns the id of the work whose attempt runs here, or None.
        self.attempt: Callable[[], str | None] = lambda: None
        #: The requests that attempts dropped, as texts by the id of the work.
        self.dropped: dict[str, list[str]] = {}

    def start(self) -> None:
        """Watch the requests that are built from now on."""
        self.on = True

    def note(self, request: WorkRequest[Any, Any], frame: FrameType) -> None:
        """Watch a request that was built in this frame, if the next instruction discards it."""
        if (found := discard_after_call(frame)) is not None:
            request.__dict__["_unused"] = Unused(request.type, *found)

    def report(self, unused: Unused) -> None:
        """Record a dropped request for the attempt that runs here, or warn."""
        if (id := self.attempt()) is not None:
            place = f"the work {unused.type!r} ({unused.module}, line {unused.line})"
            self.dropped.setdefault(id, []).append(place)
            return
        warnings.warn_explicit(
            f"the work {unused.type!r} was built and never enqueued; write enqueue(…) around it.",
            NeverEnqueued,
            unused.file,
            unused.line,
            unused.module,
            unused.names.setdefault("__warningregistry__", {}),
        )


watch = RequestWatch()


class Unused:
    """An attribute of a watched request, which is freed with it. A discarded request has no other users."""

    __slots__ = ("discard", "file", "line", "module", "names", "type")

    def __init__(self, type: str, frame: FrameType, discard: Discard) -> None:
        self.type, self.discard = type, discard
        self.names, self.module = frame.f_globals, str(frame.f_globals.get("__name__"))
        self.file, self.line = frame.f_code.co_filename, frame.f_lineno

    def __del__(self) -> None:
        if is_discarding(self.discard):
            watch.report(self)

    def __reduce__(self) -> Any:
        """Leave it out of a pickled request, and of a deep copy."""
        return type(None), ()


def show_warnings() -> None:
    """Show the warning unless the user's filters forbid it; Python's own ignore every ResourceWarning."""
    for action, text, category, module, _ in warnings.filters:
        if text is None and module is None and issubclass(NeverEnqueued, category):
            is_default = action == "ignore" and category is ResourceWarning
            if is_default and not any("ResourceWarning" in option for option in sys.warnoptions):
                warnings.simplefilter("default", NeverEnqueued)
            return
