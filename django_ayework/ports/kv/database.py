"""The Store in the queue's database."""

from __future__ import annotations

import json

from django_ayework.ports.kv.base import end_of, stored_key, whole_number
from django_ayework.rules.durations import Seconds
from django_ayework.store import entries
from django_ayework.store.database import clock, in_own_transaction


class DatabaseStore:
    """Keeps everything in the table of ``StoreEntry``, pruned by workers.

    What is done inside a transaction on the queue's database is part of it. Values are stored as JSON texts,
    so that every database keeps every character, spaces at the end too.
    """

    def get(self, key: str) -> str | None:
        """See Store.get()."""
        found = entries.value_of(stored_key(key), clock.read())
        return None if found is None else text_of(found)

    def set(self, key: str, value: str, ttl: Seconds | None = None) -> None:
        """See Store.set()."""
        end = end_of(ttl, clock.read())
        in_own_transaction(entries.put, stored_key(key), json.dumps(value), end)

    def delete(self, key: str) -> None:
        """See Store.delete()."""
        in_own_transaction(entries.remove, stored_key(key))

    def set_if_absent(self, key: str, value: str, ttl: Seconds | None = None) -> bool:
        """See Store.set_if_absent()."""
        now = clock.read()
        stored = json.dumps(value)
        return in_own_transaction(entries.set_if_absent, stored_key(key), stored, now, end_of(ttl, now))

    def increment(self, key: str, by: int = 1, ttl: Seconds | None = None) -> int:
        """See Store.increment()."""
        while True:
            if self.set_if_absent(key, str(by), ttl):
                return by
            number = in_own_transaction(self._add, key, by)
            if number is not None:
                return number

    def swap(self, key: str, expected: str | None, value: str, ttl: Seconds | None = None) -> bool:
        """See Store.swap()."""
        if expected is None:
            return self.set_if_absent(key, value, ttl)
        now = clock.read()
        before, after = json.dumps(expected), json.dumps(value)
        return in_own_transaction(entries.replace, stored_key(key), before, after, now, end_of(ttl, now))

    def _add(self, key: str, by: int) -> int | None:
        """Add to a key that is set, under its row's lock; None if it has run out meanwhile."""
        found = entries.lock_value(stored_key(key), clock.read())
        if found is None:
            return None
        number = whole_number(text_of(found), key) + by
        entries.change_value(stored_key(key), json.dumps(str(number)))
        return number


def text_of(stored: str) -> str:
    """Return a value as it was set."""
    return str(json.loads(stored))
