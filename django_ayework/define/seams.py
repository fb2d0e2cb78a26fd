"""What descriptions need from layers above; ``apps`` connects the real things at start-up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from django_ayework.define.handles import Handle
from django_ayework.define.requests import WorkRequest

R = TypeVar("R")
G = TypeVar("G")


class Connections:
    """The functions connected so far."""

    app_label_of: Callable[[str], str | None] = staticmethod(lambda module: None)
    enqueue: Callable[[WorkRequest[Any, Any]], Any]
    aenqueue: Callable[[WorkRequest[Any, Any]], Awaitable[Any]]


connections = Connections()


def is_connected() -> bool:
    """Tell whether the app ``django_ayework`` has been loaded."""
    return hasattr(connections, "enqueue")


def app_label_of(module: str) -> str | None:
    """Return the label of the installed app that a module belongs to, or None."""
    return connections.app_label_of(module)


def enqueue(request: WorkRequest[R, G]) -> Handle[R, G]:
    """Queue a request through the connected function."""
    handle: Handle[R, G] = connections.enqueue(request)
    return handle


async def aenqueue(request: WorkRequest[R, G]) -> Handle[R, G]:
    """See enqueue()."""
    handle: Handle[R, G] = await connections.aenqueue(request)
    return handle
