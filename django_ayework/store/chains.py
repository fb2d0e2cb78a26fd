"""Chains: a first work and its continuations."""

from __future__ import annotations

from django_ayework.models import Work
from django_ayework.store.database import rows
from django_ayework.store.rows import WorkRow, find_row, rows_of


def last_step(chain_id: str) -> WorkRow | None:
    """Read the last work of a chain; None when there is no such chain.

    The first work is read first: a step ends and its continuation is born in one commit, so if none is seen
    in the later statement, there was none when the step was read.
    """
    first = find_row(chain_id)
    steps = rows_of(rows(Work).filter(chain_id=chain_id).order_by("-chain_index")[:1])
    return steps[0] if steps else first


def steps_of(chain_id: str) -> list[WorkRow]:
    """Read every work of a chain, the first first."""
    first = find_row(chain_id)
    later = rows_of(rows(Work).filter(chain_id=chain_id).order_by("chain_index"))
    return [first, *later] if first else later
