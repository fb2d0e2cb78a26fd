"""What the open transaction of each thread has inserted, and whose outcome it is to write.

No other transaction can see the inserted works yet.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ayework.compat import blocks_of
from django_ayework.store.database import connection, in_transaction, is_manual, on_commit


@dataclass(slots=True)
class Uncommitted:
    """Works that one transaction inserted; it is recognised by ``block``, its outermost ``atomic``."""

    block: object
    ids: set[str] = field(default_factory=set)


#: The works that the present transaction of each connection has inserted.
_uncommitted: WeakKeyDictionary[BaseDatabaseWrapper, Uncommitted] = WeakKeyDictionary()


def remember_uncommitted(ids: Collection[str]) -> None:
    """Note works that the open transaction has inserted, if Django calls back after its commit."""
    database = connection()
    if is_manual(database):
        return
    known, block = _uncommitted.get(database), outermost_block()
    if known is None or known.block is not block:
        known = _uncommitted[database] = Uncommitted(block)
    known.ids.update(ids)
    on_commit(partial(forget_committed, known, ids))


def forget_committed(known: Uncommitted, ids: Collection[str]) -> None:
    """Forget works that are committed; in a test, where ``drain`` calls this, they are not."""
    if not in_transaction():
        known.ids.difference_update(ids)


def is_uncommitted(id: str) -> bool:
    """Tell whether this thread's open transaction inserted the work."""
    known = _uncommitted.get(connection())
    return known is not None and in_transaction() and known.block is outermost_block() and id in known.ids


def outermost_block() -> object:
    """Return the ``atomic`` that began this thread's transaction."""
    blocks = blocks_of(connection())
    return blocks[0] if blocks else None


class Settling(threading.local):
    """The work whose outcome this thread's open transaction is to write, if a handler runs inside of it."""

    id = ""


settling = Settling()
