"""``ayework_prune``: delete what has been kept long enough, in batches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_ayework.flow import maintenance
from django_ayework.management.commands import ayework_prune
from django_ayework.models import Work
from django_ayework.testing import now
from django_ayework.testing.factories import WorkFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def works() -> None:
    """Seven works that may go and one that may not."""
    for _ in range(7):
        WorkFactory(status="success", ended_at=now() - timedelta(days=2))
    WorkFactory(status="success")


def test_it_deletes_everything_due_and_says_how_much(call: Any) -> None:
    assert call("ayework_prune") == "Deleted 7 works.\n"
    assert Work.objects.count() == 1
    assert call("ayework_prune") == "Deleted 0 works.\n"


def test_it_works_in_batches(call_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = []

    def prune(limit: int) -> int:
        batches.append(maintenance.prune(limit))
        return batches[-1]

    monkeypatch.setattr(ayework_prune, "prune", prune)
    assert call_json("ayework_prune", "--batch", "3") == {"deleted": 7}
    assert batches == [3, 3, 1, 0]


@pytest.mark.parametrize("batch", ["0", "-1"])
def test_a_batch_has_at_least_one_work(call: Any, batch: str) -> None:
    with pytest.raises(CommandError, match=f"expected --batch to be 1 or more, got: {batch}"):
        call("ayework_prune", "--batch", batch)
    assert Work.objects.count() == 8
