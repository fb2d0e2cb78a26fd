"""Reading the hints of system checks."""

from __future__ import annotations

from django.core.checks import CheckMessage

from django_ayework.documentation import entry_url


def hint_of(message: CheckMessage) -> str | None:
    """Return the hint of a message without the address of its entry, which it must end with."""
    address = f"See {entry_url('checks', str(message.id))}"
    hint = message.hint or ""
    assert hint.endswith(address)
    return hint.removesuffix(address).removesuffix(" ") or None
