"""The option ``doer``: what runs the works of a type in place of the worker's slots."""

from __future__ import annotations

from django_ayework.doers import Doer
from django_ayework.errors import InvalidOption

METHODS = ("available", "submit", "drained")


def check_doer(value: object, name: str) -> Doer | None:
    """Return a doer; None stays None."""
    if value is None or (isinstance(value, Doer) and not isinstance(value, type)):
        return value
    missing = [method for method in METHODS if not callable(getattr(value, method, None))]
    why = "which is a class" if isinstance(value, type) else f"which has no {', '.join(missing)}"
    raise InvalidOption(
        f"expected {name} to be a doer, such as django_ayework.doers.balanced(8), got: {value!r}, {why}."
    )
