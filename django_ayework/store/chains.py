"""Chains: a first work and its continuations."""

from __future__ import annotations

from collections.abc import Iterable

from django_ayework.models import Work
from django_ayework.rules.states import Status
from django_ayework.store.database import chunked, rows
from django_ayework.store.rows import WorkRow, find_row, rows_of


def last_step(chain_id: str) -> WorkRow | None:
    """Read the last work of a chain; None when there is no such chain.

    The first work is read first: a step ends and its continuation is born in one commit, so if none is seen
    in the later statement, there was none when the step was read.
    """
    first = find_row(chain_id)
    steps = rows_of(rows(Work).filter(chain_id=chain_id).order_by("-chain_index")[:1])
    return steps[0] if steps else first


def steps_from(chain_id: str, start: int, limit: int) -> list[WorkRow]:
    """Read works of a chain in order, from this index on; none of a chain whose first work is alone."""
    steps = rows(Work).filter(chain_id=chain_id, chain_index__gte=start)
    return rows_of(steps.order_by("chain_index")[:limit])


def last_steps(chain_ids: Iterable[str]) -> dict[str, WorkRow]:
    """Read the last work of each chain that exists; the first works first, as in :func:`last_step`."""
    found: dict[str, WorkRow] = {}
    for some in chunked(list(chain_ids)):
        firsts = rows_of(rows(Work).filter(id__in=some))
        later = rows_of(rows(Work).filter(chain_id__in=some).order_by("chain_id", "chain_index"))
        found.update((row.chain, row) for row in [*firsts, *later])
    return found


def chain_ends(chain_ids: Iterable[str]) -> dict[str, Status]:
    """Return the status of the last work of each chain that exists."""
    return {id: Status(row.status) for id, row in last_steps(chain_ids).items()}


def chains_of(work_ids: Iterable[str]) -> dict[str, str]:
    """Read the chains of those works that exist."""
    found: dict[str, str] = {}
    for some in chunked(list(work_ids)):
        pairs = rows(Work).filter(id__in=some).values_list("id", "chain_id")
        found.update((id, chain_id or id) for id, chain_id in pairs)
    return found


def chains_of_steps(chain_ids: Iterable[str]) -> dict[str, str]:
    """Return the chain of each work of these chains; its id is that of a first work, which may be gone."""
    wanted = list(chain_ids)
    found = dict(zip(wanted, wanted, strict=True))
    for some in chunked(wanted):
        later = rows(Work).filter(chain_id__in=some).values_list("id", "chain_id")
        found.update((id, chain_id or id) for id, chain_id in later)
    return found
