"""Hooks that settings name by their dotted path."""

from __future__ import annotations


def always_abort(error: Exception, info: object) -> str:
    return "abort"
