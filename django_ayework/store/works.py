"""Small writes on a work that do not touch its status."""

from __future__ import annotations

from django_ayework.models import Work
from django_ayework.store.database import rows


def replace_input(id: str, input: str) -> None:
    """Replace the stored input of a work whose row the caller has locked."""
    rows(Work).filter(id=id).update(input=input)
