"""Runs of django-maintenance-tasks: its one task walks through a table, and queues itself again."""

from __future__ import annotations

from typing import Any

import pytest
from maintenance_tasks import runner
from maintenance_tasks.models import Run

from django_ayework.models import Work
from django_ayework.testing import drain
from tests.packages.gallery.models import Photo
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True, serialized_rollback=True)

NAME = "tests.packages.gallery.maintenance_tasks.UpperCaseTitles"


def photos(*titles: str) -> None:
    Photo.objects.bulk_create(Photo(title=title, picture="none.png") for title in titles)


def titles() -> list[str]:
    return list(Photo.objects.order_by("pk").values_list("title", flat=True))


def test_a_run_changes_each_row(worker: Any) -> None:
    photos("a", "b", "c", "d", "e")
    run = runner.start(NAME)
    eventually(lambda: Run.objects.get(pk=run.pk).status == Run.Status.SUCCEEDED)
    assert titles() == ["A", "B", "C", "D", "E"]
    eventually(lambda: Work.objects.get().status == "success")


def test_a_run_that_gives_up_its_worker_goes_on_in_works_of_its_own(settings: Any) -> None:
    settings.MAINTENANCE_TASKS = {"MAX_RUNTIME": 0}
    photos("a", "b", "c", "d", "e")
    run = runner.start(NAME)
    drain()
    run.refresh_from_db()
    assert (run.status, run.tick_count) == (Run.Status.SUCCEEDED, 5)
    assert titles() == ["A", "B", "C", "D", "E"]
    assert list(Work.objects.values_list("status", flat=True)) == ["success"] * 3


def test_a_run_that_fails_keeps_its_error(worker: Any) -> None:
    photos("a", "refused")
    run = runner.start(NAME)
    eventually(lambda: Run.objects.get(pk=run.pk).status == Run.Status.ERRORED)
    run.refresh_from_db()
    assert run.error_class == "builtins.ValueError"
    assert titles() == ["A", "refused"]
