"""From what a handler returned to what is to be written."""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from django_ayework.conf import get_settings
from django_ayework.define.context import Context
from django_ayework.define.dropped import watch
from django_ayework.define.plans import is_all_it_says, plan_of
from django_ayework.define.registry import AnyWorkType
from django_ayework.errors import InvalidInstruction
from django_ayework.flow.drafts import Drafts
from django_ayework.flow.outcomes import success_from, success_of_value
from django_ayework.flow.settle import Settlement, Success
from django_ayework.store.rows import WorkRow


def settlement_of(work_type: AnyWorkType, context: Context, row: WorkRow, returned: object) -> Settlement:
    """Turn what the handler returned into what is to be written; what cannot be stored fails the attempt.

    Inputs of very many new works are encoded when they are written, unless encode_all() does so before.
    """
    require_plain(work_type, returned)
    require_none_dropped(work_type, row)
    if work_type.settings.then is None and is_all_it_says(returned, context):
        return Settlement(row, success_of_value(returned, row, work_type))
    return Settlement(row, success_from(plan_of(returned, context, is_strict(work_type)), row))


def is_strict(work_type: AnyWorkType) -> bool:
    """Tell whether what a handler built and did not use fails the attempt."""
    own = work_type.settings.strict_return
    return get_settings().strict_return if own is None else own


def require_none_dropped(work_type: AnyWorkType, row: WorkRow) -> None:
    """Raise when the handler built a work and dropped it, for it would silently do nothing."""
    if watch.dropped and (dropped := watch.dropped.pop(row.id, None)) and is_strict(work_type):
        raise InvalidInstruction(
            f"the handler of {work_type.name!r} built {dropped[0]} that was not queued; write enqueue(…) "
            "around it, or put it into the list of a returned ctx.queue(…).",
            id=row.id,
        )


def require_plain(work_type: AnyWorkType, returned: Any) -> None:
    """Raise when a handler returned a coroutine that it did not await."""
    if isinstance(returned, CoroutineType):
        name = returned.__qualname__.rpartition(".")[2]
        returned.close()
        if work_type.is_async:
            raise InvalidInstruction(
                f"the handler of {work_type.name!r} returned a coroutine that it did not await; "
                f"write return await {name}(…)."
            )
        raise InvalidInstruction(
            f"the handler of {work_type.name!r} is a plain function that returned a coroutine; "
            f"declare it with async def, and write return await {name}(…)."
        )


def require_plain_act(work_type: AnyWorkType, stage: str, returned: Any) -> None:
    """Raise when what was given to ``ctx.aprepare`` or ``ctx.acomplete`` returned a coroutine."""
    if isinstance(returned, CoroutineType):
        name = returned.__qualname__.rpartition(".")[2]
        returned.close()
        raise InvalidInstruction(
            f"{work_type.name}: ctx.a{stage}({name}) expects a plain function, as Django's transactions "
            f"are for plain code, and {name}() returned a coroutine; write it with def."
        )


def encode_all(settlement: Settlement) -> Settlement:
    """Encode what is left to be encoded. Raises NotEncodable or PayloadTooLarge."""
    if (drafts := drafts_of(settlement)) is not None:
        drafts.encode()
    return settlement


def drafts_of(settlement: Settlement) -> Drafts | None:
    """Return the new works whose rows are still to be made."""
    return settlement.ending.drafts if isinstance(settlement.ending, Success) else None
