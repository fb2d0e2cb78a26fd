"""What tests of queueing and settling share beside fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.dispatch import Signal

from django_ayework import Context, Retry, WorkState, get_handle, work
from tests.app.works import add

ONCE = Retry(attempts=1)


@work(name="t.flow.parent")
def parent(ctx: Context):
    return ctx.queue([add(a=1, b=1), add(a=2, b=2)])


class Opaque:
    """Nothing that could be stored."""


class Oops(Exception):
    """Rolls a block back."""


def stated(id: str) -> WorkState:
    state = get_handle(id).state()
    assert state is not None
    return state


def standing(handle: Any) -> tuple[str, str | None]:
    """Return the status of a work and its reason."""
    state = handle.state()
    return str(state.status), state.reason


def always_abort(error: Exception, info: object) -> str:
    """A hook that settings name by its dotted path."""
    return "abort"


@contextmanager
def connected(receiver: Callable[..., Any], *receiving: Signal, **options: Any) -> Iterator[None]:
    """Connect a receiver to signals for a while."""
    for signal in receiving:
        signal.connect(receiver, **options)
    yield
    for signal in receiving:
        signal.disconnect(receiver, **options)
