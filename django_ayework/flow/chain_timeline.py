"""The picture of a chain: each step as a bar, drawn to scale of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from django_ayework.flow.drawing import LABELS, SHAPES, fitting
from django_ayework.rules.formatting import duration
from django_ayework.rules.workflow import UNKNOWN
from django_ayework.store.rows import WorkRow

#: Sizes in pixels: the picture, the texts to the left, one step, the scale above.
WIDTH, TEXTS, STEP, SCALE = 720, 230, 24, 24
#: The least width of a bar, and the characters of a type that fit to its left.
LEAST, FITS = 2.0, 26


@dataclass(frozen=True, slots=True)
class Bar:
    """One step: for how long it waited, and for how long it ran."""

    y: int
    status: str
    shape: str
    text: str
    title: str
    address: str | None
    is_current: bool
    waited_from: float
    waited: float
    ran_from: float
    ran: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps of a chain between two moments."""

    width: int
    height: int
    left: int
    title: str
    start: str
    end: str
    bars: tuple[Bar, ...]


def timeline(
    steps: Sequence[WorkRow], now: datetime, current: str, address_of: Callable[[str], str | None]
) -> Timeline:
    """Return the picture of the steps of a chain; there is at least one."""
    start = min(step.queued_at for step in steps)
    end = max([start, *(step.ended_at or now for step in steps)])
    whole = max((end - start).total_seconds(), 0.001)

    def place(at: datetime) -> float:
        share = min(max((at - start).total_seconds() / whole, 0.0), 1.0)
        return round(TEXTS + share * (WIDTH - TEXTS - 8), 1)

    bars = tuple(bar(step, number, now, current, place, address_of) for number, step in enumerate(steps))
    return Timeline(
        width=WIDTH,
        height=SCALE + STEP * len(bars) + 4,
        left=TEXTS,
        title=_("Steps of the chain %(id)s") % {"id": steps[0].chain},
        start=f"{localtime(start):%H:%M:%S}",
        end=f"{localtime(end):%H:%M:%S} (+{duration((end - start).total_seconds())})",
        bars=bars,
    )


def bar(
    step: WorkRow,
    number: int,
    now: datetime,
    current: str,
    place: Callable[[datetime], float],
    address_of: Callable[[str], str | None],
) -> Bar:
    """Return one step of the picture."""
    ended = step.ended_at or now
    started = min(step.started_at or ended, ended)
    waited_from, ran_from, ran_to = place(step.queued_at), place(started), place(ended)
    status = step.status if step.status in SHAPES else UNKNOWN
    label = LABELS.get(step.status, step.status)
    return Bar(
        y=SCALE + STEP * number,
        status=status,
        shape=SHAPES[status],
        text=fitting(f"{step.chain_index}. {step.type}", FITS, keep_end=False),
        title=f"{step.chain_index}. {step.type}: {label}, {spans(step, now)}",
        address=address_of(step.id),
        is_current=step.id == current,
        waited_from=waited_from,
        waited=max(ran_from - waited_from, 0.0),
        ran_from=ran_from,
        ran=max(ran_to - ran_from, LEAST) if step.started_at else 0.0,
    )


def spans(step: WorkRow, now: datetime) -> str:
    """Return for how long a step waited, and ran."""
    waited = duration(max(0.0, ((step.started_at or now) - step.queued_at).total_seconds()))
    if step.started_at is None:
        return _("waited %(waited)s") % {"waited": waited}
    ran = duration(max(0.0, ((step.ended_at or now) - step.started_at).total_seconds()))
    return _("waited %(waited)s, ran %(ran)s") % {"waited": waited, "ran": ran}
