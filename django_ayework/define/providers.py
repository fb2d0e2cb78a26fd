"""What descriptions need from the layers above; ``apps`` provides it at start-up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from django_ayework.define.handles import Handle
from django_ayework.define.requests import WorkRequest
from django_ayework.errors import ImproperWork

R = TypeVar("R")
G = TypeVar("G")


class Providers:
    """The functions connected so far."""

    app_label_of: Callable[[str], str | None] = staticmethod(lambda module: None)
    enqueue: Callable[[WorkRequest[Any, Any]], Any]
    aenqueue: Callable[[WorkRequest[Any, Any]], Awaitable[Any]]


providers = Providers()


def is_connected() -> bool:
    """Tell whether the app ``django_ayework`` has been loaded."""
    return hasattr(providers, "enqueue")


def app_label_of(module: str) -> str | None:
    """Return the label of the installed app that a module belongs to, or None."""
    return providers.app_label_of(module)


def default_name(handler: Callable[..., Any], decorator: str) -> str:
    """Return ``"<app_label>.<function name>"``; raise when the function is in no installed app."""
    label = app_label_of(handler.__module__)
    if label is None:
        hint = "" if is_connected() else " (django_ayework itself is not loaded: is it in INSTALLED_APPS?)"
        raise ImproperWork(
            f"{handler.__module__}.{handler.__qualname__} is in no installed app, so it has no name; "
            f'give one: {decorator}(name="...").{hint}'
        )
    return f"{label}.{handler.__name__}"


def enqueue(request: WorkRequest[R, G]) -> Handle[R, G]:
    """Queue a request through the connected function."""
    handle: Handle[R, G] = providers.enqueue(request)
    return handle


async def aenqueue(request: WorkRequest[R, G]) -> Handle[R, G]:
    """See enqueue()."""
    handle: Handle[R, G] = await providers.aenqueue(request)
    return handle
