"""The tasks of django-pictures, queued when a picture is saved or deleted and run by a worker process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile

from django_ayework.models import Attempt, Work
from tests.packages.gallery.models import Photo
from tests.processes import eventually

pytestmark = pytest.mark.django_db(transaction=True, serialized_rollback=True)


def copies(photo: Photo) -> list[Path]:
    """Return the files of the smaller copies of a photo."""
    return sorted(copy.path for copy in photo.picture.get_picture_files_list())


def test_the_copies_of_a_picture_are_made_and_deleted(worker: Any, png: bytes) -> None:
    photo = Photo.objects.create(title="red", picture=ContentFile(png, name="red.png"))
    files = copies(photo)
    assert len(files) > 1
    eventually(lambda: all(file.exists() for file in files))
    photo.picture.delete(save=False)
    eventually(lambda: not any(file.exists() for file in files))
    eventually(lambda: list(Work.objects.values_list("status", "queue")) == [("success", "pictures")] * 2)


def test_a_file_that_is_no_picture_is_an_error_with_its_class(worker: Any, png: bytes) -> None:
    photo = Photo(title="torn")
    photo.picture.save("torn.png", ContentFile(png), save=False)
    eventually(lambda: all(file.exists() for file in copies(photo)))
    Path(photo.picture.path).write_bytes(b"no picture")
    photo.picture.update_all()
    eventually(lambda: Attempt.objects.filter(exception="PIL.UnidentifiedImageError").exists())
