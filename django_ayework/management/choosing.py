"""Choosing the works that a command acts on: by id, by group, or by what they have in common."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from django_ayework.define.registry import registry
from django_ayework.define.requests import GATE_TYPE
from django_ayework.errors import did_you_mean


def require_choice(options: dict[str, Any], names: tuple[str, ...], which: str) -> None:
    """Raise CommandError unless works are chosen in one way: by ids, by --group, or by the options named."""
    said = ", ".join(f"--{name}" for name in names)
    narrowed = any(options[name] for name in names)
    if options["ids"] and narrowed:
        raise CommandError(f"expected either ids or {said}, got both.")
    if options["group"] and (options["ids"] or narrowed):
        raise CommandError(f"expected --group alone, or else ids or {said}, got both.")
    if not (options["ids"] or options["group"] or narrowed):
        *others, last = (f"--{name}" for name in names)
        ways = f"{', '.join(['ids, or --group', *others])} or {last}"
        raise CommandError(f"expected {ways} to say which {which}.")


def hints_on_type(type: str | None) -> list[str]:
    """Return what to say of a type of which nothing was found, if it is not known here."""
    known = [*registry.names(), GATE_TYPE]
    if type is None or type in known:
        return []
    return [f"No type of work is called {type!r} here.{did_you_mean(type, known)}"]
