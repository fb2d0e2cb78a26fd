"""What tests of chains share."""

from __future__ import annotations

from django_ayework import WorkState, get_handle


def steps_of(id: str) -> tuple[WorkState, ...]:
    """Return the works of the chain of a work, the first first."""
    chain = get_handle(id).chain_state()
    assert chain is not None
    return chain.steps
