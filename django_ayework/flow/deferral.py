"""Waiting for the caller's commit, whichever database the caller's rows are in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.db import connections, transaction


def after_commit(act: Callable[[], object], passed: frozenset[str] = frozenset()) -> None:
    """Act once every transaction that is open in this thread has committed; at once when none is open.

    A rollback of any of them drops it. ``passed`` are the aliases whose commit has been waited for.
    """
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block and connection.alias not in passed:
            following = partial(after_commit, act, passed | {connection.alias})
            transaction.on_commit(following, using=connection.alias)
            return
    act()
