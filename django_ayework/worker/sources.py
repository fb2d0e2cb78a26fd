"""What runs the works of a type: its own doer, the doer of the settings, or else the worker's slots."""

from __future__ import annotations

from django_ayework.conf import get_settings
from django_ayework.define.registry import registry
from django_ayework.doers import Doer


def doer_of(type: str) -> Doer | None:
    """Return what runs the works of a type; None for slots, which run batches without a doer of their own."""
    work_type = registry.find(type)
    if work_type is None:
        return None
    doer: Doer | None = work_type.settings.doer
    return doer if registry.batch(type) else doer or get_settings().doer


def doers_in_use() -> list[Doer]:
    """Return the doers of all registered types, each once."""
    found = {id(doer): doer for work_type in registry if (doer := doer_of(work_type.name)) is not None}
    return list(found.values())
