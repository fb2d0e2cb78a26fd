"""Which rows somebody else has locked at this moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from django.db.models import Model

from django_ayework.store.database import atomic, chunked, rows


def locked_elsewhere(model: type[Model], keys: Iterable[str]) -> set[str]:
    """Return the keys of those rows that other transactions have locked; none of ours stays locked.

    On SQLite nobody else has locked anything while this transaction lasts.
    """
    locked: set[str] = set()
    for some in chunked(sorted(set(keys))):
        locked |= locked_among(model, some)
    return locked


def locked_among(model: type[Model], keys: Collection[str]) -> set[str]:
    """Lock what can be locked at once; what is there besides is locked by others."""
    with atomic():
        free = set(
            rows(model).select_for_update(skip_locked=True).filter(pk__in=keys).values_list("pk", flat=True)
        )
        if len(free) == len(keys):
            return set()
        return set(rows(model).filter(pk__in=keys).values_list("pk", flat=True)) - free
