"""The state of a chain, as users see it."""

from __future__ import annotations

from typing import Any

from django_ayework.define.handles import ChainState
from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import InvalidOption
from django_ayework.flow.payloads import codec_of, decode_input
from django_ayework.flow.states import state_of, states_of
from django_ayework.rules.states import Status, is_terminal
from django_ayework.store.chains import last_step, steps_from
from django_ayework.store.rows import WorkRow, find_row

#: Steps of one page.
LARGEST_PAGE = 1000


def find_chain_state(id: str, start: int, limit: int) -> ChainState | None:
    """Read the state of the chain that a work belongs to, with a page of its steps.

    ``id`` is that of any of its works. The first work is read before its continuations, as in
    :func:`last_step`. Returns None when no work of the chain exists. Raises InvalidOption.
    """
    require_page(start, limit)
    row = find_row(id)
    chain_id = row.chain if row is not None else id
    first = row if row is None or row.id == chain_id else find_row(chain_id)
    page = steps_from(chain_id, start, limit + 1)
    if page and page[0].chain_index == 0:
        first = page[0]
    elif start == 0 and first is not None:
        page = [first, *page]
    is_last = 0 < len(page) <= limit
    last = page[-1] if is_last else last_step(chain_id)
    return None if last is None else chain_state(chain_id, first, last, page, limit)


def require_page(start: int, limit: int) -> None:
    """Raise unless this is a page."""
    for name, value, least, most in (("start", start, 0, None), ("limit", limit, 1, LARGEST_PAGE)):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or value < least or (most is not None and value > most):
            span = f"{least} or more" if most is None else f"from {least} to {most}"
            raise InvalidOption(f"expected {name} to be a whole number, {span}, got: {value!r}.")


def chain_state(
    chain_id: str, first: WorkRow | None, last: WorkRow, page: list[WorkRow], limit: int
) -> ChainState:
    """Return a chain as users see it; ``page`` may have a step more than is shown."""
    end = state_of(last)
    return ChainState(
        id=chain_id,
        type=first.type if first else None,
        input=readable_input(first) if first else None,
        status=end.status,
        output=end.result if end.status is Status.SUCCESS else None,
        error=end.error,
        queued_at=first.queued_at if first else None,
        ended_at=last.ended_at if is_terminal(last.status) else None,
        length=last.chain_index + 1,
        steps=tuple(states_of(page[:limit])),
        next_start=page[limit].chain_index if len(page) > limit else None,
    )


def readable_input(row: WorkRow) -> Any:
    """Return the input by name; one that cannot be read back as its text, and that of a gate as None."""
    if row.type == GATE_TYPE:
        return None
    try:
        return decode_input(row.input, codec_of(registry.find(row.type)))
    except BaseException:  # a codec of the project's own may raise anything
        return row.input
