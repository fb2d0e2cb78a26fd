"""Tasks that django-maintenance-tasks finds in this app."""

from __future__ import annotations

from maintenance_tasks import MaintenanceTask

from tests.packages.gallery.models import Photo


class UpperCaseTitles(MaintenanceTask):
    """Writes each title in capitals, two photos in a batch."""

    batch_size = 2

    def collection(self):
        return Photo.objects.all()

    def process(self, photo: Photo) -> None:
        if photo.title == "refused":
            raise ValueError("this title is refused")
        photo.title = photo.title.upper()
        photo.save(update_fields=["title"])
