"""Skipping the queue: the process that enqueued a work makes its first attempt, right after the commit.

The row is pending from the start, as any other: a worker may have it first, and has it whenever this process
cannot. Who makes attempts is connected at start-up, so that nothing here knows of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django_ayework.define.registry import registry
from django_ayework.define.requests import WorkRequest
from django_ayework.errors import InvalidOption
from django_ayework.flow.births import Birth
from django_ayework.flow.events import guarded
from django_ayework.store.database import in_transaction, on_commit
from django_ayework.store.rows import WorkRow


class Connections:
    """Who makes first attempts in this process; ``held_back`` leaves them to workers, as tests do."""

    intake: Callable[[Sequence[WorkRow]], object] | None = None
    held_back = False


connections = Connections()


def skips_queue(request: WorkRequest[Any, Any], given: Mapping[str, Any]) -> bool:
    """Tell whether a work is to be started by the process that enqueues it.

    Raises InvalidOption for one that cannot start at once.
    """
    work_type = registry.find(request.type)
    constants = {"skip_queue": work_type is not None and work_type.settings.skip_queue}
    levels: tuple[Mapping[str, Any], ...] = (given, request.options, constants)
    if not next(level["skip_queue"] for level in levels if "skip_queue" in level):
        return False
    require_one_work(request)
    require_start_at_once(request, levels)
    return True


def require_one_work(request: WorkRequest[Any, Any]) -> None:
    """Raise for what has no handler to call for it alone: gates, and works that are run together."""
    work_type = registry.find(request.type)
    if work_type is None or registry.batch(request.type) is not None:
        raise InvalidOption(
            f"expected skip_queue=True for works that are run one by one, got {request.type!r}, whose works "
            "wait for others; leave skip_queue out."
        )
    if work_type.settings.doer is not None:
        raise InvalidOption(
            f"expected skip_queue=True for works without a doer= of their own, got {request.type!r}: what "
            "its doer limits must reach a worker; leave one of both out."
        )


def require_start_at_once(request: WorkRequest[Any, Any], levels: Iterable[Mapping[str, Any]]) -> None:
    """Raise for an option that lets the work start later; the first level that names a start decides it."""
    options: dict[str, Any] = {}
    for level in levels:
        if options.keys().isdisjoint(("delay", "run_at")):
            options |= {name: level[name] for name in ("delay", "run_at") if name in level}
        options.setdefault("blockers", level.get("blockers"))
    for name in ("run_at", "delay", "blockers"):
        if options.get(name):
            raise InvalidOption(
                f"expected no {name}= for a work that skips the queue, as that starts at once, got: "
                f"{name}={options[name]!r} for {request.type!r}; leave it out, or enqueue the work with "
                "skip_queue=False."
            )


def start_after_commit(births: Iterable[Birth], taken: Collection[str] = ()) -> None:
    """Hand works that skip the queue over to who makes attempts, once they are committed.

    A rollback, of a savepoint too, drops it. ``taken`` are ids that existed, and are not ours.
    """
    new = [birth.row for birth in births if birth.skips_queue and birth.row.id not in taken]
    if new:
        on_commit(partial(hand_over, new))


def hand_over(works: Sequence[WorkRow]) -> None:
    """Start works that are committed; in a test, where ``drain`` calls this, they are not."""
    if connections.intake is not None and not connections.held_back and not in_transaction():
        guarded(connections.intake, works)
