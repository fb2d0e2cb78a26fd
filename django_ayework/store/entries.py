"""Keys with an end: set, compared and deleted; and locks on keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db.models import Q
from django.db.models.query import QuerySet

from django_ayework.models import StoreEntry
from django_ayework.store.database import CHUNK, atomic, connection, dialect, rows, stored_moment


def set_if_absent(key: str, value: str, now: datetime, expires_at: datetime | None) -> bool:
    """Set a key unless it is set and has not expired; return whether it was set. One winner per key."""
    rows(StoreEntry).filter(key=key, expires_at__lte=now).delete()
    quote = connection().ops.quote_name
    columns = ", ".join(map(quote, ("key", "value", "expires_at")))
    verb, ending = dialect().insert_ignore
    with connection().cursor() as cursor:
        cursor.execute(
            f"{verb} INTO {quote(StoreEntry._meta.db_table)} ({columns}) VALUES (%s, %s, %s) {ending}",
            (key, value, stored_moment(expires_at)),
        )
        return bool(cursor.rowcount == 1)


def is_set(key: str, now: datetime) -> bool:
    """Tell whether a key is set and has not expired."""
    return unexpired(key, now).exists()


def value_of(key: str, now: datetime) -> str | None:
    """Return what a key is set to, or None."""
    return unexpired(key, now).values_list("value", flat=True).first()


def put(key: str, value: str, expires_at: datetime | None) -> None:
    """Set a key, whether it was set or not."""
    write_entries([StoreEntry(key=key, value=value, expires_at=expires_at)])


def write_entries(entries: Sequence[StoreEntry]) -> None:
    """Insert keys, or update those that are there; each is locked in this order."""
    names_its_target = connection().features.supports_update_conflicts_with_target
    rows(StoreEntry).bulk_create(
        entries,
        batch_size=CHUNK,
        update_conflicts=True,
        update_fields=["value", "expires_at"],
        unique_fields=["key"] if names_its_target else None,
    )


def replace(key: str, expected: str, value: str, now: datetime, expires_at: datetime | None) -> bool:
    """Set a key if it has the expected value; return whether it was. Of several at once, one wins.

    Values are compared byte by byte, but MariaDB and MySQL overlook spaces at their end.
    """
    matching = unexpired(key, now).filter(value=expected)
    return matching.update(value=value, expires_at=expires_at) == 1


def lock_value(key: str, now: datetime) -> str | None:
    """Return what a key is set to, and keep others from changing it until our transaction has ended."""
    return unexpired(key, now).select_for_update().values_list("value", flat=True).first()


def change_value(key: str, value: str) -> None:
    """Change what a key is set to, and leave its end alone."""
    rows(StoreEntry).filter(key=key).update(value=value)


def remove(key: str) -> None:
    """Delete a key, if it is there."""
    rows(StoreEntry).filter(key=key).delete()


def delete_expired(now: datetime, limit: int) -> int:
    """Delete up to ``limit`` expired keys, passing over those that a transaction is using."""
    with atomic():
        expired = rows(StoreEntry).filter(expires_at__lte=now).select_for_update(skip_locked=True)
        keys = list(expired.values_list("key", flat=True)[:limit])
        return rows(StoreEntry).filter(key__in=keys).delete()[0] if keys else 0


def unexpired(key: str, now: datetime) -> QuerySet[StoreEntry]:
    """Return the row of a key that has not expired, if there is one."""
    return rows(StoreEntry).filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now), key=key)


# Locks on keys: a name can be locked before a row has it, until the transaction ends.


def lock_keys(keys: Iterable[tuple[str, ...]], expires_at: datetime) -> None:
    """Make every other locker of these keys wait until our transaction has ended.

    In one order for all, so that two batches cannot wait for each other. The rows mean nothing once their
    transaction has ended; they expire so that pruning removes them.
    """
    names = sorted(set(map(lock_name, keys)))
    write_entries([StoreEntry(key=name, value="", expires_at=expires_at) for name in names])


def lock_name(key: tuple[str, ...]) -> str:
    """Return the name of a key's lock row: short, whatever the key's length; its first part says what for."""
    return f"{key[0]}:" + hashlib.sha256("\0".join(key[1:]).encode()).hexdigest()
