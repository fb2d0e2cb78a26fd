"""Waiters of these tests."""

from __future__ import annotations

from django_ayework.store.dependencies import WaiterRow, Watch, insert_waiters


def watch(waiter: str, *ids: str, chain: bool = False, outcome: str = "") -> None:
    """Let a waiter watch these works, or chains, of which it knows this outcome."""
    row = WaiterRow(waiter, '"all-success"', "dead", len(ids), 0, 0, False)
    row = row._replace(succeeded=len(ids) * (outcome == "success"), missed=len(ids) * (outcome == "dead"))
    insert_waiters([row], {waiter: [Watch(id, chain, outcome) for id in ids]})
