"""Works to fill in: most are queued with their input alone, so those of a type differ in little else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django_ayework.conf import Settings, get_settings
from django_ayework.define.registry import AnyWorkType, registry
from django_ayework.define.requests import WorkRequest
from django_ayework.flow.births import ALONE, NOTHING_GIVEN, work_row
from django_ayework.flow.direct import skips_queue
from django_ayework.flow.options import resolve
from django_ayework.flow.payloads import codec_of
from django_ayework.rules.codec import Codec
from django_ayework.rules.news import Due
from django_ayework.store.blanks import BlankInsert
from django_ayework.store.clock import clock
from django_ayework.store.database import vendor
from django_ayework.store.rows import WorkRow

#: What stands for the id and the input of a sample; both have to be something, to have a place in the INSERT.
ANY_ID, ANY_INPUT = "id", "{}"
#: Blanks that are kept.
MOST = 1024


@dataclass(frozen=True, slots=True)
class Blank:
    """What works of a type share: a row but for id, input and moment, its INSERT, and what it is news of."""

    sample: WorkRow
    insert: BlankInsert
    codec: Codec
    due: Due

    def row(self, id: str, input: str, now: datetime) -> WorkRow:
        """Return the row of a work."""
        return self.sample._replace(id=id, input=input, queued_at=now, run_at=now)


def blank_of(request: WorkRequest[Any, Any]) -> Blank | None:
    """Return the blank of works of a request's type; None if there is more to say of this one."""
    work_type = registry.find(request.type)
    if work_type is None or request.options or type(request) is not WorkRequest:
        return None
    settings = get_settings()
    known = _known if _known.settings is settings else known_anew(settings)
    try:
        return known.blanks[work_type]
    except KeyError:
        return known.add(work_type)


class Blanks:
    """The blanks of types, under the settings of which they were made."""

    def __init__(self, settings: Settings | None) -> None:
        self.settings = settings
        self.blanks: dict[AnyWorkType, Blank | None] = {}

    def add(self, work_type: AnyWorkType) -> Blank | None:
        """Make the blank of a type."""
        if len(self.blanks) >= MOST:
            self.blanks.clear()
        blank = self.blanks[work_type] = new_blank(work_type)
        return blank


def known_anew(settings: Settings) -> Blanks:
    """Forget blanks of other settings."""
    global _known
    _known = Blanks(settings)
    return _known


def new_blank(work_type: AnyWorkType) -> Blank | None:
    """Return the blank of a type's works; None if they expire, have a label, or are started by who queues."""
    request = WorkRequest[Any, Any](type=work_type.name, input={}, id=ANY_ID)
    resolved = resolve(request, NOTHING_GIVEN, released=False)
    if skips_queue(request, NOTHING_GIVEN) or resolved.stored.expires is not None:
        return None
    sample = work_row(request, resolved, ALONE, clock.now(), text=ANY_INPUT)
    if sample.fairness:
        return None
    due = Due(frozenset({(sample.queue, sample.type)}))
    return Blank(sample, BlankInsert.of(vendor(), sample), codec_of(work_type), due)


_known = Blanks(None)  # none yet: settings may not be usable, which checks tell
