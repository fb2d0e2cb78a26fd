"""Works whose id exists already: queued before, or another work that has the same id."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from django_ayework.define.ids import new_id
from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import InvalidWorkId
from django_ayework.flow.births import Birth
from django_ayework.flow.payloads import codec_of
from django_ayework.store.rows import WorkRow, find_rows

logger = logging.getLogger("django_ayework")


def leave_taken(rows: Sequence[WorkRow], promised: bool = False) -> None:
    """Leave works as they are that were queued before, and log that.

    Raises InvalidWorkId when one of these rows is another work than the one that exists. Ids of ours are
    never made twice; those of ``AYEWORK["ID"]`` may be, and the work would be lost unnoticed. Works that a
    gate has ``promised`` are not compared: an error would undo the end of the work that opened the gate.
    """
    if not rows:
        return
    ids = sorted(row.id for row in rows)
    if not promised and new_id.custom() is not None:
        known = find_rows(ids)
        require_same((row, known[row.id]) for row in rows if row.id in known)
    logger.info("Works that exist already were not queued again: %s", ", ".join(ids))


def one_per_id(births: Sequence[Birth], promised: bool = False) -> list[Birth]:
    """Return one of those that have the same id. Raises InvalidWorkId as leave_taken() does."""
    distinct = {birth.row.id: birth for birth in births}
    if len(distinct) < len(births) and not promised:
        require_same((birth.row, distinct[birth.row.id].row) for birth in births)
    return list(distinct.values())


def require_same(pairs: Iterable[tuple[WorkRow, WorkRow]]) -> None:
    """Raise InvalidWorkId for a new row whose id another work has."""
    for new, known in pairs:
        if not is_same(new, known):
            other = "another input" if known.type == new.type else f"the type {known.type!r}"
            raise InvalidWorkId(
                f"expected AYEWORK['ID'] to make an id for {new.type!r} that no other work has, but a work "
                f"{known.id!r} exists, of {other}. Correct the function, then enqueue the work again.",
                id=known.id,
            )


def is_same(new: WorkRow, known: WorkRow) -> bool:
    """Tell whether a row has the type and the input of another one.

    A codec of the project's own may encode one value as several texts.
    """
    if new.type != known.type or new.input == known.input:
        return new.type == known.type
    if new.type == GATE_TYPE:
        return False
    codec = codec_of(registry.find(new.type))
    try:
        return bool(codec.decode(new.input) == codec.decode(known.input))
    except Exception:  # a codec of the project's own may raise anything
        return False
