"""Types with doers of their own, and how many of their works wait."""

from typing import Any

from django_ayework import work
from django_ayework.models import Work


def typed(handler: Any, doer: Any, name: str = "doing.own", **options: Any) -> Any:
    """Declare a type of its own for a test."""
    return work(name=name, doer=doer, **options)(handler)


def pending() -> int:
    return Work.objects.filter(status="pending").count()
