"""Works whose ids are delivered, or are not."""

from __future__ import annotations

import threading
import time

from django_ayework import BatchItem, Context, batch_work, work


class Stage:
    """How often each number was run, and what holds a work that is to take long."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.go = threading.Event()


stage = Stage()


@work(name="delivery.count", queue="bulk")
def count(number: int) -> int:
    stage.ran.append(number)
    return number


@work(name="delivery.hold", queue="bulk")
def hold() -> None:
    stage.go.wait(60)


@work(name="delivery.limited", queue="bulk", max_running=1)
def limited(number: int) -> int:
    return number


@batch_work(name="delivery.batch", queue="bulk", size=5, max_wait=0.01)
def batch(items: list[BatchItem[int]]) -> list[int]:
    return [item.input for item in items]


@work(name="delivery.once", queue="bulk", atomic=True)
def once(ctx: Context, number: int) -> int:
    """Take a moment, and write a row in the transaction that ends the work."""
    from tests.app.models import Order

    time.sleep(0.002)
    Order.objects.create(reference=str(number))
    return number
