"""wagtail's own tasks, queued by its signal receivers and run by a worker process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from wagtail.images.models import Image
from wagtail.images.tasks import set_image_focal_point_task
from wagtail.models import Page

from django_ayework.models import Work
from tests.processes import eventually

#: What migrations put into the tables is there again for each test.
pytestmark = pytest.mark.django_db(transaction=True, serialized_rollback=True)


@pytest.fixture
def root() -> Page:
    """The root of the pages."""
    return Page.objects.get(depth=1)


def works(task: str) -> list[Work]:
    return list(Work.objects.filter(type__endswith=task))


def all_succeeded() -> bool:
    return not Work.objects.exclude(status="success").exists()


def test_a_page_is_found_once_a_worker_has_indexed_it(worker: Any, root: Page) -> None:
    root.add_child(instance=Page(title="Quick brown fox", slug="fox"))
    eventually(lambda: Page.objects.search("brown").count() == 1)
    assert works("modelsearch.tasks.insert_or_update_object_task")
    assert works("wagtail.tasks.update_reference_index_task")
    eventually(all_succeeded)


def test_an_image_is_indexed_and_its_file_deleted(worker: Any, root: Page, png: bytes) -> None:
    image = Image.objects.create(title="Red square", file=ContentFile(png, name="red.png"))
    path = Path(image.file.path)
    eventually(lambda: Image.objects.search("square").count() == 1)
    [detection] = works("wagtail.images.tasks.set_image_focal_point_task")
    eventually(all_succeeded)
    image.refresh_from_db()
    assert image.focal_point_width
    assert path.exists()
    image.delete()
    eventually(lambda: not path.exists())
    eventually(all_succeeded)
    detection.refresh_from_db()
    assert (detection.status, detection.attempt) == ("success", 1)


def test_a_task_that_fails_has_the_error_of_each_attempt(worker: Any, root: Page) -> None:
    result = set_image_focal_point_task.enqueue("wagtailimages", "image", "987654")
    eventually(lambda: Work.objects.get(pk=result.id).status == "scheduled")
    result.refresh()
    [error] = result.errors
    assert error.exception_class_path == "wagtail.images.models.Image.DoesNotExist"
    assert str(result.status) == "READY"
