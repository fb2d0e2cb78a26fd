"""A request: one call of a work, built but not yet enqueued."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import isfunction
from opcode import opmap
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

from django_ayework.define.handles import Handle
from django_ayework.define.ids import new_id
from django_ayework.define.options import QueueOptions, refuse_identity
from django_ayework.errors import NeverEnqueued, no_attribute
from django_ayework.rules.conditions import Condition, require_condition
from django_ayework.rules.durations import Seconds, seconds
from django_ayework.rules.identity import require_work_id

# --- dropped ---
# Requests that are built and dropped: they would silently do nothing.
#
# The call that builds a request, or that returns it, may be an expression statement. Then the instruction
# behind the call throws the request away, and Python frees it there. Only a request before such an
# instruction is watched, so others cost little. One that is kept nevertheless is freed at another
# instruction.

#: Throws away the value of an expression statement; ends a function.
POP_TOP, RETURN_VALUE = bytes([opmap["POP_TOP"]]), bytes([opmap["RETURN_VALUE"]])
#: Instructions and their caches have two bytes each, and a call has no more caches than these.
STEP, CACHES = 2, 16
#: The attribute of a request that holds the object whose deletion raises the warning.
ATTRIBUTE = "_unused"


class Watch:
    """Whether requests are watched in this process, and what was dropped by attempts that run here.

    Frames and their instructions are as CPython has them.
    """

    def __init__(self) -> None:
        self.on = False
        #: Returns the id of the work whose attempt runs here, or None.
        self.attempt: Callable[[], str | None] = lambda: None
        #: By id of such a work, what it dropped.
        self.dropped: dict[str, list[str]] = {}

    def start(self) -> None:
        """Watch the requests that are built from now on."""
        self.on = sys.implementation.name == "cpython"


watch = Watch()


def note(request: Any, frame: FrameType) -> None:
    """Watch a request that was built in this frame, if the frame or its caller is about to throw it away."""
    following, dropping = behind_call(frame), frame
    if following == RETURN_VALUE and frame.f_back is not None:
        dropping = frame.f_back
        following = behind_call(dropping)
    if following == POP_TOP:
        request.__dict__[ATTRIBUTE] = Unused(request.type, frame, dropping)


def behind_call(frame: FrameType) -> bytes:
    """Return the instruction behind the call at which a frame is; the caches in between are zeros."""
    begin = frame.f_lasti + STEP
    return frame.f_code.co_code[begin : begin + CACHES].lstrip(b"\0")[:1]


class Unused:
    """Tells of its request when a frame throws that away."""

    __slots__ = ("call", "code", "dropping", "instruction", "names", "type")

    def __init__(self, type: str, frame: FrameType, dropping: FrameType) -> None:
        self.type = type
        self.code, self.instruction, self.names = frame.f_code, frame.f_lasti, frame.f_globals
        self.dropping, self.call = id(dropping), dropping.f_lasti  # a frame is the same object while it runs

    def __del__(self) -> None:
        try:
            frame = sys._getframe(1)
        except ValueError:  # the process ends
            return
        code, now = frame.f_code.co_code, frame.f_lasti
        is_thrown_away = id(frame) == self.dropping and code[now : now + 1] == POP_TOP and now > self.call
        if is_thrown_away and not any(code[self.call + STEP : now]):
            self.tell()

    def __reduce__(self) -> Any:
        """Leave it out of a pickled request, and of a deep copy."""
        return type(None), ()

    def tell(self) -> None:
        """Note it for the attempt that runs here, or warn."""
        module, line = str(self.names.get("__name__")), self.line()
        if (id := watch.attempt()) is not None:
            watch.dropped.setdefault(id, []).append(f"the work {self.type!r} ({module}, line {line})")
            return
        warnings.warn_explicit(
            f"the work {self.type!r} was built and never enqueued; write enqueue(…) around it.",
            NeverEnqueued,
            self.code.co_filename,
            line,
            module,
            self.names.setdefault("__warningregistry__", {}),
        )

    def line(self) -> int:
        """Return the line that built the request."""
        lines = self.code.co_lines()
        found = (line for start, end, line in lines if start <= self.instruction < end and line is not None)
        return next(found, self.code.co_firstlineno)


def show_warnings() -> None:
    """Show the warning, unless the user's filters say otherwise; Python's own ignore any ResourceWarning."""
    for action, text, category, module, _ in warnings.filters:
        if text is None and module is None and issubclass(NeverEnqueued, category):
            is_pythons = action == "ignore" and category is ResourceWarning
            if is_pythons and not any("ResourceWarning" in option for option in sys.warnoptions):
                warnings.simplefilter("default", NeverEnqueued)
            return


# --- requests ---
# A request: one call of a work, built but not yet queued.

R_co = TypeVar("R_co", covariant=True)
G_co = TypeVar("G_co", covariant=True)

#: The reserved type of a gate.
GATE_TYPE = "@work/dependency"


#: What is done with a request is done by functions.
MEANINGS = {
    "enqueue": "enqueue(work)",
    "aenqueue": "await aenqueue(work)",
    "delay": "enqueue(work)",
    "apply_async": "enqueue(work, delay=…)",
    "send": "enqueue(work)",
    "result": "enqueue(work).result()",
    "state": "enqueue(work).state()",
    "then": "ctx.queue([work]).next([…])",
}


class Queueable(Generic[R_co, G_co]):
    """What ``ctx.queue`` takes: requests and instructions."""

    if not TYPE_CHECKING:  # which are to know the attributes that there are

        def __getattr__(self, name):
            """Raise AttributeError, saying what has such an attribute."""
            if name == "next":
                raise AttributeError(
                    f"{self!r} has no .next, which is of ctx.queue(…) only: write "
                    "return ctx.queue([…]).next([…])."
                )
            raise no_attribute(repr(type(self).__name__), name, (), self._meanings)

    _meanings: ClassVar[Mapping[str, str]] = {}


@dataclass(frozen=True, eq=False)
class WorkRequest(Queueable[R_co, G_co]):
    """A call of a work: nothing is queued yet, but ``id`` exists, so a gate can watch it.

    Typed by the work's own result and by what it contributes to its group.
    """

    type: str
    input: Mapping[str, Any]
    id: str = field(default_factory=new_id)
    options: QueueOptions = field(default_factory=QueueOptions)

    _meanings = MEANINGS

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.type} {self.id}>"


@dataclass(frozen=True, eq=False, repr=False)
class GateRequest(WorkRequest[None, G_co]):
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
    """Build a gate: once the works ``on`` meet the condition, the works of ``queue`` are queued.

    ``on`` takes requests, handles or ids, which need not exist yet. After ``timeout`` (seconds or timedelta,
    from queueing) an unopened gate dies as ``expired``. A gate that can never open dies as
    ``unsatisfiable``, or keeps waiting with ``on_unmet="wait"``.

    Raises ValueError for a condition the watched works cannot meet, TypeError for works with ``dedup`` or
    ``unit``.
    """
    on = listed(on)
    require_own_identity(on, "dependency(on=)")
    watched = tuple(watched_ids(on))
    require_condition(condition, len(watched))
    if on_unmet not in ("dead", "wait"):
        raise ValueError(f"expected on_unmet to be 'dead' or 'wait', got: {on_unmet!r}.")
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
        note(gate, sys._getframe(1))
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


def require_step(work: WorkRequest[R_co, G_co]) -> WorkRequest[R_co, G_co]:
    """Return the work if it can continue a chain; a gate cannot, for it has no handler and no result."""
    [step] = require_requests([work], "ctx.continue_with(work)")
    if isinstance(step, GateRequest):
        raise TypeError("expected ctx.continue_with(work) to have a work with a handler, got a gate.")
    if "unit" in step.options:
        refuse_identity({"unit": step.options}, f"ctx.continue_with(...), given {step!r},")
    return work


def require_requests(items: Any, where: str) -> Iterable[WorkRequest[Any, Any]]:
    """Return the requests, else raise TypeError saying how to build one."""
    for item in listed(items):
        if not isinstance(item, WorkRequest):
            raise TypeError(
                f"expected {where} to have works built by calling their type, such as add(a=1, b=2), "
                f"got: {item!r}.{how_to_build(item)}"
            )
        yield item


def how_to_build(item: object) -> str:
    """Return what to write instead of a type, or a function, that was not called.

    >>> how_to_build(5)
    ''
    """
    name = getattr(item, "__name__", None)
    if hasattr(item, "handler") and callable(item):
        return f" Call the type: {name}(…)."
    if isfunction(item):
        return f" Is it a work? Write @work above {name}, and call it: {name}(…)."
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
