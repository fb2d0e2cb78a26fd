"""Keys with an end, set once: the primitive of every claim."""

from __future__ import annotations

from datetime import datetime

from django_ayework.models import StoreEntry
from django_ayework.store.database import atomic, connection, rows, stored_moment


def set_if_absent(key: str, value: str, now: datetime, expires_at: datetime) -> bool:
    """Set a key unless it is set and has not expired; return whether it was set. One winner per key."""
    rows(StoreEntry).filter(key=key, expires_at__lte=now).delete()
    quote = connection().ops.quote_name
    columns = ", ".join(map(quote, ("key", "value", "expires_at")))
    verb, ending = (
        ("INSERT IGNORE", "") if connection().vendor == "mysql" else ("INSERT", "ON CONFLICT DO NOTHING")
    )
    with connection().cursor() as cursor:
        cursor.execute(
            f"{verb} INTO {quote(StoreEntry._meta.db_table)} ({columns}) VALUES (%s, %s, %s) {ending}",
            (key, value, stored_moment(expires_at)),
        )
        return bool(cursor.rowcount == 1)


def is_set(key: str, now: datetime) -> bool:
    """Tell whether a key is set and has not expired."""
    return rows(StoreEntry).filter(key=key, expires_at__gt=now).exists()


def delete_expired(now: datetime, limit: int) -> int:
    """Delete up to ``limit`` expired keys, passing over those that a transaction is using."""
    with atomic():
        expired = rows(StoreEntry).filter(expires_at__lte=now).select_for_update(skip_locked=True)
        keys = list(expired.values_list("key", flat=True)[:limit])
        return rows(StoreEntry).filter(key__in=keys).delete()[0] if keys else 0
