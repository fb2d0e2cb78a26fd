"""What the tests of bad input and of retrying share."""

from __future__ import annotations

from django_ayework import WorkState, get_handle


class Opaque:
    """Nothing that could be stored."""


def stated(id: str) -> WorkState:
    state = get_handle(id).state()
    assert state is not None
    return state
