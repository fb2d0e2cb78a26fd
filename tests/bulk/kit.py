"""What the tests of bulk actions share."""

from __future__ import annotations

from typing import Any

from django_ayework import Retry, enqueue_many, start_bulk_action
from django_ayework.models import BulkAction
from django_ayework.testing import drain
from tests.app.works import fail

ONCE = Retry(attempts=1)


def dead_works(number: int, message: str = "no luck", **options: Any) -> list[str]:
    """Let so many works die of one cause; return their ids."""
    handles = enqueue_many([fail(message=f"{message} {n}") for n in range(number)], retry=ONCE, **options)
    drain(raises=False)
    return [handle.id for handle in handles]


def retry_all(**options: Any) -> BulkAction:
    """Store a bulk action that retries all dead works."""
    return start_bulk_action("retry", options.pop("filter", {"status": "dead"}), **options)


def now_of(row: BulkAction) -> BulkAction:
    """Return a bulk action as it is now."""
    return BulkAction.objects.get(id=row.id)
