"""What operators have decided about its type or queue."""

from __future__ import annotations

from collections.abc import Iterable

from django_ayework.rules.controls import Controls
from django_ayework.rules.explaining.explanation import Code, Reason
from django_ayework.rules.explaining.words import counted


def pauses(type: str, queue: str, controls: Controls) -> list[Reason]:
    """Return whether the type or its queue is paused, and how to go on."""
    found = []
    if controls.of(type).paused:
        text = f"Its type {type!r} is paused; resume(type={type!r}) or the admin's controls let it go on."
        found.append(Reason(Code.TYPE_PAUSED, text, {"type": type}))
    if queue in controls.paused_queues:
        text = f"Its queue {queue!r} is paused; resume(queue={queue!r}) or the admin's controls let it go on."
        found.append(Reason(Code.QUEUE_PAUSED, text, {"queue": queue}))
    return found


def limits(type: str, queue: str, running: int, waiting: Iterable[str], controls: Controls) -> list[Reason]:
    """Return what keeps a type back: its limit, and types of its queue that rank above it.

    ``running`` counts its works that run now, ``waiting`` are the types of which the queue has due works.
    """
    found = []
    control = controls.of(type)
    if control.max_running and running >= control.max_running:
        text = (
            f"Its type {type!r} is at its limit: {counted(running, 'work')} of it "
            f"{'runs' if running == 1 else 'run'}, and {control.max_running} may."
        )
        found.append(Reason(Code.AT_LIMIT, text, {"running": running, "max_running": control.max_running}))
    above = sorted(other for other in waiting if controls.of(other).priority > control.priority)
    if above:
        text = f"Types of higher priority go first in its queue {queue!r}: {', '.join(map(repr, above))}."
        found.append(Reason(Code.OUTRANKED, text, {"queue": queue, "types": above}))
    return found
